package image

import "path/filepath"

// CacheDir returns the image directory of a host with this state directory.
func CacheDir(stateDir string) string { return filepath.Join(stateDir, "images") }
