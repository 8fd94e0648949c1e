// Package build contains the version of the binary.
package build

// Version is set when the binary is built.
var Version = "development"
