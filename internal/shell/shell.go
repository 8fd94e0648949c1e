// Package shell quotes words for POSIX shells.
package shell

import "strings"

// Quote returns a word in single quotes, which a shell reads back unchanged.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
