// Package standard lists the resource classes and traits that OpenStack defines (os-resource-classes 1.1.0, os-traits
// 2.9.0), in its spelling. The names of all others start with CUSTOM_.
package standard

import (
	_ "embed" // for the two lists
	"slices"
	"strings"
	"sync"

	"croft/internal/lazyregexp"
)

var (
	//go:embed classes.txt
	classesText string
	//go:embed traits.txt
	traitsText string
)

// Classes returns the names of the resource classes in OpenStack's order. The slice is shared: do not change it.
var Classes = sync.OnceValue(func() []string { return strings.Fields(classesText) })

// Traits returns the names of the traits in alphabetical order. The slice is shared: do not change it.
var Traits = sync.OnceValue(func() []string { return strings.Fields(traitsText) })

// customForm is the form of the names of custom classes, whose length Placement limits.
var customForm = lazyregexp.New(`^CUSTOM_[A-Z0-9_]{1,248}$`)

// IsClass reports whether a name is the name of a standard or custom resource class.
func IsClass(name string) bool {
	return customForm.MatchString(name) || slices.Contains(Classes(), name)
}
