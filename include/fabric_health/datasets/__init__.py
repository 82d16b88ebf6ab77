"""Result datasets: contracts of the tables, the store they live in, and how they are queried."""
