package mdserver

import "strings"

// node is a directory (children) or a file (body) of a metadata tree.
type node struct {
	name     string        // its path element
	shown    string        // its name in its parent's listing
	children func() []node // nil: a file
	body     func() []byte // nil: a directory
	mime     string
}

// file returns a file with known text.
func file(name, text string) node {
	return node{name: name, shown: name, mime: mimeText, body: func() []byte { return []byte(text) }}
}

// computed returns a file whose body is computed on request.
func computed(name, mime string, body func() []byte) node {
	return node{name: name, shown: name, mime: mime, body: body}
}

// dir returns a directory. It is listed with a slash, which tells clients that walk the tree to descend.
func dir(name string, children ...node) node {
	return lazyDir(name, func() []node { return children })
}

// lazyDir returns a directory whose children are computed on request.
func lazyDir(name string, children func() []node) node {
	return node{name: name, shown: name + "/", children: children}
}

// as returns a copy of n that is listed as shown.
func (n node) as(shown string) node {
	n.shown = shown
	return n
}

// find returns the node at a path. It accepts double and trailing slashes, since clients send both.
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

// content returns the body of a file, or the listing of a directory with one child per line.
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
