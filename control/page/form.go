package page

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"croft"
	"croft/client"
	"croft/control"
	"croft/control/api"
	"croft/internal/lazyregexp"
	"croft/tenant/access"
)

// form is a page that sends one operation. The document of the API describes its inputs; a form states only what the
// document does not have.
type form struct {
	Op     string // the operation
	At     string // path below Root; its parts in braces are inputs of Op and Now
	Title  string
	Does   string // the words of its button; the title by default
	Link   string // the words of links to it; those of the button by default
	About  string
	Done   string // a sentence for afterwards
	Back   string // path of the page that leads here
	Then   string // path to go to afterwards, with parts in braces of the address or the answer; Back by default
	Inputs []formInput
	Set    map[string]string // inputs with fixed texts, which may have parts in braces of the address
	Now    string            // operation that reads what Op changes; its answer fills the inputs
	Final  bool              // it cannot be undone: the user types a name
	Word   string            // that name: a part of the address, or a property of what Now reads
	Shows  string            // what the page with the answer says; empty: no such page
	See    access.Rule       // rule for offering it, if that of Op is wider
	Named  string            // operation that reads the name of the object, if Now reads none
	Beside []string          // names of forms that may be needed first
}

// formInput is an input of a form.
type formInput struct {
	Name  string // of the input of the operation; with a dot: of a property in it
	Label string
	Help  string // by default, what the document says
	Value string // of a new form
	As    notation
	Among func(*visit) []string // suggests values
	Fresh bool                  // it is empty in the beginning, although Now reads a property of this name
	Makes string                // path of the form that makes what Among finds none of
	Must  bool                  // the form requires it, and the operation has other ways
	// Only operators may give it.
	Operator bool
}

// known is an operation of the document.
type known struct {
	operation

	Method, Path string
	May          access.Rule
	Body         schema
	Unsent       string // why users cannot send it from the reference; empty: they can
}

// known operations by their IDs.
var operations = sync.OnceValue(func() map[string]known {
	all := map[string]known{}
	document, err := parsed()
	if err != nil {
		panic(err) // the document is embedded
	}
	for path, methods := range document.Paths {
		for method, o := range methods {
			one := known{operation: o, Method: strings.ToUpper(method), Path: path}
			one.Body = document.resolve(o.RequestBody.Content["application/json"].Schema)
			all[o.ID] = one
		}
	}
	for _, o := range control.Operations() {
		one := all[o.ID]
		one.May, one.Unsent = o.May, unsent(o)
		all[o.ID] = one
	}
	return all
})

func (d openAPI) resolve(s schema) schema {
	if s.Ref == "" {
		return s
	}
	found := d.Components.Schemas[s.kind()]
	found.Description = cmp.Or(s.Description, found.Description)
	return found
}

// property returns the schema of an input, and whether it is required.
func (k known) property(name string) (s schema, required, exists bool) {
	s, inside := k.Body, k.Body
	document, _ := parsed() // succeeded before
	for part := range strings.SplitSeq(name, ".") {
		if inside = document.resolve(s); inside.Properties == nil {
			exists = false
			break
		}
		required = slices.Contains(inside.Required, part)
		if s, exists = inside.Properties[part]; !exists {
			break
		}
	}
	if exists {
		return document.resolve(s), required && !strings.Contains(name, "."), true
	}
	for _, p := range k.Parameters {
		if p.Name == name {
			p.Schema.Description = p.Description
			return p.Schema, p.Required, true
		}
	}
	return s, false, false
}

// name names a form in addresses: the fixed parts of its path.
func (f form) name() string {
	parts := strings.Split(strings.Trim(f.At, "/"), "/")
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p[0] == '{' }), ".")
}

// parts lists the names of the parts in braces of a path.
func parts(path string) (names []string) {
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}

// fillIn replaces the parts in braces of a path.
func fillIn(path string, value func(string) string) string {
	for _, name := range parts(path) {
		path = strings.Replace(path, "{"+name+"}", url.PathEscape(value(name)), 1)
	}
	return path
}

// formNamed has the forms by their names.
var formNamed = sync.OnceValue(func() map[string]form {
	all := map[string]form{}
	for _, f := range forms() {
		all[f.name()] = f
	}
	return all
})

// formAt returns the form at a path.
func formAt(path string) form {
	return formNamed()[strings.ReplaceAll(strings.Trim(path, "/"), "/", ".")]
}

// may reports whether to offer a form. The API decides about each request.
func (v *visit) may(f form) bool {
	rule := operations()[f.Op].May
	if f.See != (access.Rule{}) {
		rule = f.See
	}
	return access.MayAnywhere(rule, v.caller.Roles)
}

// deed is a link to a form.
type deed struct {
	Does, Link string
	Of         string // what it is about, for those who do not see the row
	Final      bool
	Main       bool // the first thing to do on its page
}

// finalOrNot returns the deeds that cannot be undone, or the others.
func finalOrNot(all []deed, final bool) (some []deed) {
	for _, d := range all {
		if d.Final == final {
			some = append(some, d)
		}
	}
	return some
}

// deeds returns links to the forms that the caller may use. values has pairs of a part of their paths, or another input
// that is taken from the address, and its value.
func (v *visit) deeds(project croft.Project, values []string, names ...string) (all []deed) {
	for _, name := range names {
		f, exists := formNamed()[name]
		if !exists {
			panic("there is no form " + name)
		}
		if !v.may(f) {
			continue
		}
		of, query := "", []string{}
		path := f.At
		for i := 0; i+1 < len(values); i += 2 {
			part := "{" + values[i] + "}"
			if !strings.Contains(f.At, part) {
				if slices.ContainsFunc(f.Inputs, func(in formInput) bool { return in.Name == values[i] }) {
					query = append(query, values[i], values[i+1])
				}
			} else if of == "" {
				of = values[i+1]
			}
			path = strings.Replace(path, part, url.PathEscape(values[i+1]), 1)
		}
		all = append(all, deed{Does: cmp.Or(f.Link, f.Does, f.Title), Link: link(project, path, query...), Of: of,
			Final: f.Final})
	}
	return all
}

// field is an input as the page shows it.
type field struct {
	Name, Label, Help, Value string
	Kind                     string // text, number, check, choice, block, password or hidden
	Secret                   bool   // it is never shown, not even to whom sent it
	Choices                  []string
	Among                    []string
	Makes                    *deed // makes what Among finds none of
	Lacks                    bool  // Among finds nothing, and the caller cannot make it
	Required                 bool
	MaxLength                int
	Was                      string // in the version that the form was made of
	Based                    bool   // the form was made of a version
	Wrong                    string // why it is refused
}

// sent is a request for a form.
type sent struct {
	form
	known

	v       *visit
	address map[string]string // the parts of the path
	now     map[string]any    // what Now reads
	etag    string
}

// begin reads the address of a form, and what it changes.
func (f form) begin(v *visit) (*sent, error) {
	s := &sent{form: f, known: operations()[f.Op], v: v, address: map[string]string{}}
	for _, name := range parts(f.At) {
		s.address[name] = v.r.PathValue(name)
	}
	return s, s.read()
}

// read reads what the form changes.
func (s *sent) read() error {
	if s.Now == "" {
		return nil
	}
	inputs := map[string]any{}
	for name, text := range s.Set {
		inputs[name] = s.fixed(text)
	}
	a, err := s.v.send(s.Now, s.address, inputs, "")
	if croft.KindOf(err) == croft.NotFound && s.Method == http.MethodPut && !ended(err) {
		s.now, s.etag = map[string]any{}, api.EntityTag(0) // it creates the object
		return nil
	}
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(a.Body))
	d.UseNumber()
	s.etag, s.now = a.ETag, nil
	return d.Decode(&s.now)
}

// fixed returns a text with the parts of the address in it.
func (s *sent) fixed(text string) string {
	for name, value := range s.address {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// send sends the request of an operation. address has parts of its path, and inputs its other parameters and the
// properties of its body.
func (v *visit) send(op string, address map[string]string, inputs map[string]any, version string) (client.Answer,
	error) {
	o, query, header := operations()[op], url.Values{}, http.Header{}
	path, body := o.Path, maps.Clone(inputs)
	for _, p := range o.Parameters {
		text, there := address[p.Name]
		if _, own := o.Body.Properties[p.Name]; !own {
			if value, is := inputs[p.Name]; is && !there {
				text, there = fmt.Sprint(value), true
			}
			delete(body, p.Name)
		}
		switch p.In + " " + p.Name {
		case "header If-Match":
			if version != "" {
				header.Set("If-Match", version)
			}
			continue
		case "query project":
			text = string(v.project)
		case "path project":
			text = string(v.projectName())
		}
		if p.In == "query" && text != "" {
			query.Set(p.Name, text)
		}
		if p.In != "path" {
			continue
		}
		if slices.Contains([]string{"", ".", ".."}, text) {
			return client.Answer{}, croft.Errorf(croft.Invalid, "%q cannot be the name or the ID of anything", text)
		}
		path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(text), 1)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if o.Body.Properties == nil {
		return v.client.Send(v.ctx, o.Method, path, nil, header)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return client.Answer{}, err
	}
	return v.client.Send(v.ctx, o.Method, path, text, header)
}

// shown reports whether the caller is offered an input.
func (s *sent) shown(in formInput) bool { return !in.Operator || s.v.caller.Operator() }

// text returns the text of an input in what the form changes.
func (s *sent) text(in formInput) string {
	var value any = s.now
	for part := range strings.SplitSeq(in.Name, ".") {
		inside, _ := value.(map[string]any)
		value = inside[part]
	}
	of, _, _ := s.property(in.Name)
	return withLF(textOf(value, of, in.As))
}

// fields returns the inputs with their texts: of the request, or else the present ones.
func (s *sent) fields() (all []field) {
	q := s.v.r.URL.Query()
	if s.v.r.Method == http.MethodPost {
		q = s.v.r.PostForm
	}
	for _, in := range s.Inputs {
		if !s.shown(in) {
			continue
		}
		of, required, _ := s.property(in.Name)
		required = required || in.Must
		f := field{Name: in.Name, Label: cmp.Or(in.Label, labelOf(in.Name)), Help: cmp.Or(in.Help, helpOf(of)),
			Kind: "text", Choices: of.Enum, Required: required, MaxLength: of.MaxLength, Value: in.Value}
		if in.Help == "-" {
			f.Help = ""
		}
		if s.now != nil && !in.Fresh {
			f.Was, f.Based = s.text(in), true
			f.Value = f.Was
		} else if of.Default != nil && of.kind() == "boolean" {
			f.Value = yes(of.Default == true)
		}
		if in.Among != nil {
			f.Among = in.Among(s.v)
			f.Makes, f.Lacks = s.makes(in, f)
		}
		switch kind := of.kind(); {
		case in.As == addressed:
			f.Kind = "hidden"
		case of.WriteOnly:
			f.Kind, f.Value, f.Secret = "password", "", true
		case len(of.Enum) > 0:
			f.Kind = "choice"
		case kind == "boolean":
			f.Kind, f.Required = "check", false
		case in.As == block, in.As == lines, in.As == object, kind == "object", of.Encoding != "":
			f.Kind, f.Secret = "block", valuesOf(of).WriteOnly
		case in.As != duration && (kind == "integer" || kind == "number" || in.As == count):
			f.Kind = "number"
		}
		if q.Has(in.Name) && !f.Secret {
			f.Value = q.Get(in.Name)
		} else if f.Kind == "check" && s.v.r.Method == http.MethodPost {
			f.Value = "no"
		}
		all = append(all, f)
	}
	return all
}

// makes returns the link to the form that makes what a field finds nothing of, or reports that others have to make it.
func (s *sent) makes(in formInput, f field) (d *deed, lacks bool) {
	if len(f.Among) > 0 || in.Makes == "" {
		return nil, false
	}
	if in.Makes == "/instances/new" {
		return &deed{Does: "New instance", Link: s.v.link(in.Makes)}, false
	}
	all := s.v.deeds(s.v.project, nil, formAt(in.Makes).name())
	if len(all) == 0 {
		return nil, true
	}
	all[0].Does = formAt(in.Makes).Title
	return &all[0], false
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// labelOf makes a label of the name of an input.
func labelOf(name string) string {
	name = strings.ReplaceAll(name[strings.LastIndexByte(name, '.')+1:], "_", " ")
	return strings.ToUpper(name[:1]) + name[1:]
}

// helpOf is what the document says about an input, for people who leave fields empty.
func helpOf(s schema) string {
	return strings.NewReplacer("Left out:", "Empty:", "left out:", "empty:").Replace(s.Description)
}

// inputs returns the inputs that a form sends. In a change, these are the ones that the user changed. problems.
func (s *sent) inputs() (map[string]any, error) {
	all, wrong := map[string]any{}, problems{}
	for name, text := range s.Set {
		of, _, _ := s.property(name)
		value, err := valueOf(s.fixed(text), of, byType)
		if err != nil {
			return nil, err
		}
		put(all, name, value)
	}
	posted := s.v.r.PostForm
	for _, f := range s.fields() {
		text := strings.TrimSpace(f.Value)
		if f.Secret {
			text = posted.Get(f.Name)
		}
		of, _, _ := s.property(f.Name)
		required := f.Required
		unchanged := text == "" || f.Kind == "check" && text == yes(of.Default == true)
		if f.Based {
			unchanged = text == strings.TrimSpace(posted.Get("was."+f.Name))
		}
		if unchanged && !required && (f.Kind != "hidden" || text == "") {
			continue
		}
		if required && text == "" && of.kind() != "object" && of.Items == nil {
			wrong = append(wrong, problem{f.id(), f.Label, "it is missing"})
			continue
		}
		i := slices.IndexFunc(s.Inputs, func(in formInput) bool { return in.Name == f.Name })
		value, err := valueOf(text, of, s.Inputs[i].As)
		if err != nil {
			wrong = append(wrong, problem{f.id(), f.Label, err.Error()})
			continue
		}
		put(all, f.Name, value)
	}
	if len(wrong) > 0 {
		return nil, wrong
	}
	return all, nil
}

// id is the ID of a field on its page.
func (f field) id() string { return "f-" + f.Name }

// asSent keeps the version that the form was made of, so that a form that is shown again does not build on another one.
func (q *question) asSent(f url.Values) {
	q.Version = cmp.Or(f.Get("version"), q.Version)
	for n, one := range q.Fields {
		if was := "was." + one.Name; one.Based && f.Has(was) {
			q.Fields[n].Was = f.Get(was)
		}
	}
}

// put sets a property, which may be in another one.
func put(all map[string]any, name string, value any) {
	outer, rest, inside := strings.Cut(name, ".")
	if !inside {
		all[name] = value
		return
	}
	inner, is := all[outer].(map[string]any)
	if !is {
		inner = map[string]any{}
		all[outer] = inner
	}
	put(inner, rest, value)
}

// question returns the page of a form.
func (s *sent) question() question {
	q := question{Title: s.Title, About: s.About, Does: cmp.Or(s.Does, s.Title), Final: s.Final, Fields: s.fields(),
		Post: s.v.link(fillIn(s.At, s.part)), Back: s.v.link(fillIn(s.form.Back, s.part)), Version: s.etag}
	for _, name := range s.Beside {
		q.Beside = append(q.Beside, s.v.deeds(s.v.project, []string{"near", s.part("name")}, name)...)
	}
	if names := parts(s.At); len(names) > 0 {
		q.Name = s.part(names[len(names)-1])
		if name, is := s.now["name"].(string); is {
			q.Name = name
		} else if s.Named != "" {
			q.Name = cmp.Or(s.v.nameOf(s.Named, s.address), q.Name)
		} else if alias, is := s.now["alias"].(string); is {
			q.Name = alias
		}
	}
	if s.Final {
		q.Word = q.Name
	}
	if s.Word != "" {
		q.Word = s.part(s.Word)
		q.Name = cmp.Or(q.Name, q.Word)
	}
	return q
}

// nameOf returns the name that an operation reads; empty: it reads none.
func (v *visit) nameOf(op string, address map[string]string) string {
	var read struct {
		Name string `json:"name"`
	}
	a, err := v.send(op, address, nil, "")
	if err == nil {
		err = json.Unmarshal(a.Body, &read)
	}
	if err != nil {
		return "" // the form is useful without it
	}
	return read.Name
}

// part returns a part of the address, a property of what the form changes, or the project.
func (s *sent) part(name string) string {
	if value, is := s.address[name]; is {
		return value
	}
	if name == "project" {
		return string(s.v.projectName())
	}
	value, _ := s.now[name].(string)
	return value
}

// serve shows a form, or does what it says.
func (f form) serve(v *visit) error {
	s, err := f.begin(v)
	if err != nil {
		return err
	}
	q := s.question()
	if v.r.Method != http.MethodPost {
		if !v.may(f) {
			return croft.Errorf(croft.Denied, "your roles do not permit it: %s", s.Summary)
		}
		return v.askAbout(http.StatusOK, q)
	}
	q.asSent(v.r.PostForm)
	if sure, err := v.answered(q); !sure {
		return err
	}
	version := v.r.PostForm.Get("version")
	if version != "" {
		if version, err = versionIn(v.r.PostForm); err != nil {
			return v.refused(q, err)
		}
	}
	inputs, err := s.inputs()
	if err != nil {
		return v.refused(q, err)
	}
	if s.now != nil && !s.based() && s.differs() {
		return s.showDifference("another request changed it")
	}
	answer, err := v.send(f.Op, s.address, inputs, version)
	if p, is := errors.AsType[*api.Problem](err); is && s.now != nil && p.Status != http.StatusBadRequest {
		if s.read() == nil && (p.Code == api.GenerationMismatch || s.differs()) {
			return s.showDifference(p.Detail)
		}
	}
	if err != nil {
		return v.refused(q, err)
	}
	if f.Shows != "" {
		return s.showAnswer(answer)
	}
	var made map[string]any
	_ = json.Unmarshal(answer.Body, &made) // some operations answer with nothing
	then := fillIn(cmp.Or(f.Then, f.Back), func(name string) string {
		if value, is := made[name].(string); is && s.address[name] == "" {
			return value
		}
		return s.part(name)
	})
	if f.Op == "removeProject" {
		v.project = ""
	}
	if project, is := made["project"].(string); is && f.Then != "" {
		v.project = croft.Project(project)
	}
	return v.redirect(then, "done", f.name())
}

// oneVersion is the entity tag of one version, or its number.
var oneVersion = lazyregexp.New(`^(?:"[\x21\x23-\x7e]*"|[0-9]+)$`)

// versionIn returns the version that a form was made of: not several, and not any. Invalid.
func versionIn(f url.Values) (string, error) {
	if version := f.Get("version"); oneVersion.MatchString(version) {
		return version, nil
	}
	return "", croft.Errorf(croft.Invalid, "the form does not say which version it changes: reload the page")
}

// based reports whether the operation itself checks which version it changes.
func (s *sent) based() bool {
	return slices.ContainsFunc(s.Parameters, func(p parameter) bool { return p.Name == "If-Match" })
}

// differs reports whether what the form changes has other values than those that the form was made of.
func (s *sent) differs() bool {
	for _, in := range s.Inputs {
		was := "was." + in.Name
		now := strings.TrimSpace(s.text(in))
		if form := s.v.r.PostForm; form.Has(was) &&
			strings.TrimSpace(form.Get(was)) != now {
			return true
		}
	}
	return false
}

// showDifference shows what another request changed since the form was made, and what this one wanted.
func (s *sent) showDifference(why string) error {
	q := s.question()
	d := difference{Name: q.Name, Says: why, Post: q.Post, Back: q.Back, Sent: url.Values{"version": {s.etag}}}
	for _, f := range q.Fields {
		was, want := s.v.r.PostForm.Get("was."+f.Name), f.Value
		switch {
		case f.Kind == "hidden":
			d.Sent.Set(f.Name, cmp.Or(f.Was, f.Value))
			continue
		case f.Secret: // it is typed again
			continue
		case f.Kind != "check" || f.Value == "yes":
			d.Sent.Set(f.Name, f.Value)
		}
		d.Sent.Set("was."+f.Name, f.Was)
		if strings.TrimSpace(want) == strings.TrimSpace(was) {
			want = "(unchanged)"
		}
		d.Rows = append(d.Rows, differing{f.Label, was, f.Was, want})
	}
	if q.Word != "" {
		d.Sent.Set("typed", q.Word)
	}
	return s.v.show(http.StatusPreconditionFailed, "difference", "Changed meanwhile", d)
}

// answerPage is what the page with an answer shows.
type answerPage struct {
	Title, Name, Says, Back string
	Facts                   []fact
}

// showAnswer shows the answer of an operation.
func (s *sent) showAnswer(a client.Answer) error {
	q := s.question()
	d := answerPage{Title: q.Title, Name: q.Name, Says: s.Shows, Back: q.Back}
	var all map[string]any
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	decoder.UseNumber()
	if err := decoder.Decode(&all); err != nil {
		return croft.Errorf(croft.Unavailable, "the answer of the API cannot be read: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := textOf(all[name], schema{}, object)
		if s.Op == "runCommand" && (name == "stdout" || name == "stderr") {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return croft.Errorf(croft.Unavailable, "the answer of the API cannot be read: %w", err)
			}
			text = string(raw)
		}
		d.Facts = append(d.Facts, fact{labelOf(name), text})
	}
	return s.v.show(http.StatusOK, "answer", q.Title, d)
}
