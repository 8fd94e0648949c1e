package image

import "path/filepath"

// CacheDir is where a host with that state directory keeps its images.
func CacheDir(stateDir string) string { return filepath.Join(stateDir, "images") }
