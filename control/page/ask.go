package page

import (
	"errors"
	"net/http"
	"strings"

	"croft/control/api"
)

// question is what the page that asks for a confirmation shows.
type question struct {
	Title   string
	Name    string // of the object
	About   string
	Does    string // the words of the button
	Post    string // where the answer goes
	Back    string
	Final   bool   // it cannot be undone
	Word    string // what the user types to confirm; empty: nothing
	Options []option
	Fields  []field
	Beside  []deed // links to forms that may be needed first
	Version string // of what a form changes
	Hidden  map[string]string
	refusal // why it was not done
}

// option is a choice on that page.
type option struct {
	Name, Value, Label string
	One                bool // of several
	Checked            bool
	Disabled           string // why it cannot be chosen
}

// ask shows a question.
func (v *visit) askAbout(status int, q question) error {
	title := q.Title
	if q.Name != "" {
		title += ": " + q.Name
	}
	return v.show(status, "ask", title, q)
}

// answered reports whether the form confirms a question; else it shows the question again, with the reason.
func (v *visit) answered(q question) (bool, error) {
	if q.Word == "" || v.r.PostForm.Get("typed") == q.Word {
		return true, nil
	}
	q.Says = "type " + q.Word + " to confirm: this cannot be undone"
	return false, v.askAbout(http.StatusUnprocessableEntity, q)
}

// refused shows a question again, with the error of what it asked about.
func (v *visit) refused(q question, err error) error {
	if ended(err) {
		return err
	}
	q.refusal = v.refusalOf(err)
	q.mark(err)
	return v.askAbout(failureOf(v.r, err).Status, q)
}

// mark marks the fields that an error is about: the page's own problems, or those that the API finds in the body.
func (q *question) mark(err error) {
	wrong, _ := errors.AsType[problems](err)
	if p, is := errors.AsType[*api.Problem](err); is {
		for _, one := range p.Errors {
			name := strings.ReplaceAll(strings.TrimPrefix(one.Pointer, "/"), "/", ".")
			for _, f := range q.Fields {
				if f.Name == name {
					wrong = append(wrong, problem{f.id(), f.Label, one.Detail})
				}
			}
		}
	}
	q.Problems = wrong
	for n, f := range q.Fields {
		q.Fields[n].Wrong = wrong.about(f.id())
	}
}

// to leads the browser to a page that belongs to no project, after a change.
func (v *visit) to(path string, query ...string) error {
	v.project = ""
	return v.redirect(path, query...)
}
