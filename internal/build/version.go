// Package build says which version the binary is.
package build

// Version is set when the binary is built.
var Version = "development"
