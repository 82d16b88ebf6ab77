"""The embedded lab: a small GPU cluster on loopback whose units answer over real SSH as the real tools would."""
