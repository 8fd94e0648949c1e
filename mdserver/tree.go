package mdserver

import "strings"

// node is a directory (children) or a file (body) of a metadata tree.
type node struct {
	name     string        // the path element it answers to
	shown    string        // how the directory above lists it
	children func() []node // nil for a file
	body     func() []byte // nil for a directory
	mime     string
}

// file is a text, known now.
func file(name, text string) node {
	return node{name: name, shown: name, mime: mimeText, body: func() []byte { return []byte(text) }}
}

// computed is a file that is made only when it is asked for.
func computed(name, mime string, body func() []byte) node {
	return node{name: name, shown: name, mime: mime, body: body}
}

// dir is listed with a slash, which tells clients that walk the tree to go in.
func dir(name string, children ...node) node {
	return lazyDir(name, func() []node { return children })
}

// lazyDir is a directory that is made only when somebody goes into it.
func lazyDir(name string, children func() []node) node {
	return node{name: name, shown: name + "/", children: children}
}

// as is n, listed in another way.
func (n node) as(shown string) node {
	n.shown = shown
	return n
}

// find walks down a path. Slashes may be doubled, and may end it or not, since
// clients do both.
func (n node) find(path string) (node, bool) {
	for element := range strings.SplitSeq(path, "/") {
		if element == "" {
			continue
		}
		child, ok := n.child(element)
		if !ok {
			return node{}, false
		}
		n = child
	}
	return n, true
}

func (n node) child(name string) (node, bool) {
	if n.children == nil {
		return node{}, false
	}
	for _, c := range n.children() {
		if c.name == name {
			return c, true
		}
	}
	return node{}, false
}

// content is the body of a file or the listing of a directory, one child a line.
func (n node) content() (body []byte, mime string) {
	if n.body != nil {
		return n.body(), n.mime
	}
	var lines []string
	for _, c := range n.children() {
		lines = append(lines, c.shown)
	}
	return []byte(strings.Join(lines, "\n")), mimeText
}
