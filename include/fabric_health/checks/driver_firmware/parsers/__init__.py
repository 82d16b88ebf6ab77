"""Pure parsers, one module a family of tools: text in, typed values out. None raises on any text."""
