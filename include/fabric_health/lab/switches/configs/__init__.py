"""Running configurations of the five platforms: a lossless RoCE fabric as the site file plans it."""
