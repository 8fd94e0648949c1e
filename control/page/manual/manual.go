// Package manual makes HTML of documents in Markdown, whose links lead to each other where a server has them. Headings
// have the anchors that GitHub gives them, so that the documents link alike in both places.
package manual

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"net/url"
	"path"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// Document is a document as HTML.
type Document struct {
	Name     string // of its file, without .md
	Title    string // the heading of level 1
	Sections []Section
	Body     template.HTML
}

// Section is a heading below the title.
type Section struct {
	ID    string // the anchor
	Title string
	Level int
}

// Has reports whether the document has an anchor.
func (d Document) Has(anchor string) bool {
	return bytes.Contains([]byte(d.Body), fmt.Appendf(nil, ` id="%s"`, template.HTMLEscapeString(anchor)))
}

// Index is the name of the document that is served at the root of the others.
const Index = "README"

// Render renders every Markdown file, and returns the documents by their names, which differ. They are served at
// root/NAME, and the document Index at root. Links to files that are not served, below the directory source, become
// text that names it.
func Render(files fs.FS, root, source string) (map[string]Document, error) {
	served, all := map[string]string{}, map[string]Document{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path.Ext(name) == ".md" {
			served[name] = strings.TrimSuffix(path.Base(name), ".md")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for name := range served {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		p := page{name: name, root: root, source: source, served: served, content: content}
		d, err := p.render()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, twice := all[d.Name]; twice {
			return nil, fmt.Errorf("%s: there are two documents of this name", d.Name)
		}
		all[d.Name] = d
	}
	return all, nil
}

// page is a document that is being rendered.
type page struct {
	name, root, source string
	served             map[string]string // names of documents, by their files
	content            []byte
}

// Goldmark leaves out raw HTML, and the style attributes of table cells are replaced, because the page permits none.
var markdown = goldmark.New(goldmark.WithExtensions(extension.NewTable(
	extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))))

// frames lets what may be wider than the screen be moved sideways, also by keyboard. Texts and attributes are escaped,
// so these tags are only those that Goldmark writes.
var frames = strings.NewReplacer("<pre>", `<pre tabindex="0">`, "</table>", "</table></div>",
	"<table>", `<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>`, "<th></th>", "<td></td>")

// Text returns a text in Markdown as HTML. Its links stay as they are.
func Text(t string) template.HTML {
	var b bytes.Buffer
	if err := markdown.Convert([]byte(t), &b); err != nil {
		return template.HTML(template.HTMLEscapeString(t))
	}
	return template.HTML(b.String()) // Goldmark escapes texts, and leaves out raw HTML
}

func (p page) render() (Document, error) {
	tree := markdown.Parser().Parse(text.NewReader(p.content))
	d := Document{Name: p.served[p.name]}
	var links []*ast.Link
	var comments []ast.Node
	taken := map[string]int{}
	err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			links = append(links, n)
		case *ast.HTMLBlock:
			if n.HTMLBlockType == ast.HTMLBlockType2 {
				comments = append(comments, n)
			}
		case *ast.Heading:
			title := p.textOf(n)
			id := anchor(title, taken)
			n.SetAttributeString("id", []byte(id))
			if n.Level == 1 {
				d.Title = title
			} else {
				d.Sections = append(d.Sections, Section{ID: id, Title: title, Level: n.Level})
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return Document{}, err
	}
	for _, c := range comments {
		c.Parent().RemoveChild(c.Parent(), c)
	}
	for _, l := range links {
		if err := p.lead(l); err != nil {
			return Document{}, err
		}
	}
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, p.content, tree); err != nil {
		return Document{}, err
	}
	d.Body = template.HTML(frames.Replace(b.String())) // Goldmark escapes texts, and leaves out raw HTML
	return d, nil
}

// lead changes the destination of a link to where the document is served, or the link to text.
func (p page) lead(l *ast.Link) error {
	u, err := url.Parse(string(l.Destination))
	if err != nil {
		return err
	}
	if u.IsAbs() || u.Host != "" || u.Path == "" {
		return nil
	}
	file := path.Join(path.Dir(p.name), u.Path)
	name, served := p.served[file]
	if !served {
		parent := l.Parent()
		for l.FirstChild() != nil {
			parent.InsertBefore(parent, l, l.FirstChild())
		}
		note := ast.NewString(fmt.Appendf(nil, " (<code>%s</code> in the source)",
			template.HTMLEscapeString(path.Join(p.source, file))))
		note.SetCode(true) // it is written as it is
		parent.InsertBefore(parent, l, note)
		parent.RemoveChild(parent, l)
		return nil
	}
	to := url.URL{Path: p.root, Fragment: u.Fragment}
	if name != Index {
		to.Path += "/" + name
	}
	l.Destination = []byte(to.String())
	return nil
}

// textOf returns the text of a node without its markup.
func (p page) textOf(n ast.Node) string {
	var b strings.Builder
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			b.Write(c.Segment.Value(p.content))
		case *ast.String:
			b.Write(c.Value)
		default:
			b.WriteString(p.textOf(c))
		}
	}
	return b.String()
}

// anchor returns the anchor that GitHub gives to a heading, with a number if an earlier one has the same.
func anchor(title string, taken map[string]int) string {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r), unicode.IsMark(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
	n := taken[id]
	taken[id]++
	if n > 0 {
		return fmt.Sprintf("%s-%d", id, n)
	}
	return id
}
