package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"croft"
	"croft/control"
	"croft/control/page/manual"
	"croft/internal/wording"
	"croft/tenant/access"
)

// Limits on the requests that users write in the reference.
const (
	tryTime  = 2 * time.Minute // for an answer: operations that wait do so for a minute by default
	mostRead = 1 << 20         // bytes of an answer that are read
	mostTold = 256 << 10       // bytes of an answer that are shown
)

// unsent says why the page does not send an operation; empty: it does.
func unsent(o control.Operation) string {
	switch {
	case o.Status == http.StatusSwitchingProtocols:
		return "It has no button: it makes a WebSocket of the connection, which lasts until one side ends it. Consoles and " +
			"screens are on the page of each instance."
	case o.Events != nil:
		return "It has no button: its answer is a stream of events that goes on as long as something happens. Follow it with " +
			"the command."
	case o.Takes != "":
		return "It has no button: its body is a file, which may be larger than a form."
	}
	return ""
}

// final reports whether the page asks before it sends an operation, because what it changes cannot be changed back.
func final(o known) bool {
	return o.Method == http.MethodDelete ||
		slices.Contains([]string{"rebuildInstance", "rollBackSnapshot", "fenceHost"}, o.ID) ||
		slices.ContainsFunc(forms(), func(f form) bool { return f.Op == o.ID && f.Final })
}

// trial is a request of an operation, whose inputs the user writes in the reference.
type trial struct {
	known

	v *visit
}

// tried is the answer to a trial.
type tried struct {
	Status  string
	Good    bool
	Took    string
	Headers []fact
	Body    string
	Note    string // about the body
}

// trialPage is what the page of a trial shows.
type trialPage struct {
	known

	About   template.HTML
	Fields  []field
	Body    string
	Rows    int     // of the body; 0: the operation takes none
	Inside  []input // properties of the body
	Denied  string  // why the button is missing
	Final   bool
	Command equivalent
	Answer  *tried
	Post    string
	refusal
}

// tryOperation shows the form of any operation, and sends it with the credentials of the session.
func (v *visit) tryOperation() error {
	o, exists := operations()[v.r.PathValue("operation")]
	if !exists {
		return croft.Errorf(croft.NotFound, "the API has no operation %.80q: %s/reference lists them",
			v.r.PathValue("operation"), docsRoot)
	}
	t := trial{o, v}
	if v.r.Method != http.MethodPost {
		return t.show(http.StatusOK, nil, nil)
	}
	if o.Unsent != "" {
		return t.refuse(croft.Errorf(croft.Invalid, "%s", o.Unsent))
	}
	if v.r.PostForm.Get("do") == "show" {
		return t.show(http.StatusOK, nil, nil)
	}
	path, header, err := t.request(true)
	if err != nil {
		return t.refuse(err)
	}
	if final(o) {
		q := t.question(path)
		if !v.r.PostForm.Has("typed") {
			return v.askAbout(http.StatusOK, q)
		}
		if sure, err := v.answered(q); !sure {
			return err
		}
	}
	return t.send(path, header)
}

// texts returns what the user wrote for an input: the lines of a list, or one text.
func (t trial) texts(p parameter) (all []string) {
	q := t.v.r.URL.Query()
	if t.v.r.Method == http.MethodPost {
		q = t.v.r.PostForm
	}
	name := "in." + p.Name
	if !q.Has(name) && p.In == "query" && p.Name == "project" && t.v.r.Method != http.MethodPost {
		q.Set(name, string(t.v.project))
	}
	if p.Schema.Items == nil {
		if text := strings.TrimSpace(q.Get(name)); text != "" {
			return []string{text}
		}
		return nil
	}
	for line := range strings.Lines(q.Get(name)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// request returns the path of the request, with its query, and its headers. Without whole, the parts that are missing
// stay in braces. Invalid.
func (t trial) request(whole bool) (path string, header http.Header, err error) {
	path, header = t.Path, http.Header{}
	query := url.Values{}
	for _, p := range t.Parameters {
		texts := t.texts(p)
		if len(texts) == 0 && p.In == "path" && !whole {
			continue
		}
		switch {
		case len(texts) == 0 && p.Required:
			return "", nil, croft.Errorf(croft.Invalid, "%s: it is missing", p.Name)
		case p.In == "path" && (texts[0] == "." || texts[0] == ".."):
			return "", nil, croft.Errorf(croft.Invalid, "%s: %q cannot be the name or the ID of anything", p.Name,
				texts[0])
		case p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(texts[0]), 1)
		case p.In == "header" && len(texts) > 0:
			header.Set(p.Name, texts[0])
		case p.In == "query" && len(texts) > 0:
			query[p.Name] = texts
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path, header, nil
}

// hasBody reports whether the operation takes JSON.
func (t trial) hasBody() bool { return t.Body.Properties != nil }

// starts has bodies to start with, for operations that need more than what the document requires.
var starts = map[string]string{
	"createInstance": `{"name": "web", "image": "debian-12", "query": "VCPU:1,MEMORY_MB:512,DISK_GB:5"}`,
	"explainRequest": `{"image": "debian-12", "query": "VCPU:1,MEMORY_MB:512,DISK_GB:5"}`,
	"createClaim":    `{"name": "web", "query": "VCPU:1,MEMORY_MB:512,DISK_GB:5", "hold": 3600}`,
	"changeInstance": `{"labels": {"env": "test"}}`,
	"resizeInstance": `{"resources": {"VCPU": 2, "MEMORY_MB": 1024}}`,
	"changeObject":   `{"set": {"env": "test"}, "add_tags": ["keep"]}`,
	"changeCluster":  `{"slaves": 2}`,
}

// body returns the body that the user wrote, or else one to start with.
func (t trial) body() string {
	if t.v.r.Method == http.MethodPost {
		return t.v.r.PostForm.Get("body")
	}
	document, _ := parsed() // succeeded before
	start := document.example(t.Body)
	if text, is := starts[t.ID]; is {
		start = json.RawMessage(text)
	}
	text, err := jsonText(start, "")
	if err != nil {
		return ""
	}
	return text
}

// example returns a value to start with: the properties that are required, with their defaults.
func (d openAPI) example(s schema) any {
	s = d.resolve(s)
	switch {
	case s.Default != nil:
		return s.Default
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Items != nil:
		return []any{d.example(*s.Items)}
	}
	switch s.kind() {
	case "object":
		all := map[string]any{}
		for _, name := range s.Required {
			all[name] = d.example(s.Properties[name])
		}
		return all
	case "boolean":
		return false
	case "integer", "number":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 0
	}
	return ""
}

// withoutSecrets returns a body in which secrets have another text, and no other body.
func (t trial) withoutSecrets(body, instead string) string {
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var all map[string]any
	if d.Decode(&all) != nil {
		return body
	}
	found := false
	for name, of := range t.Body.Properties {
		if _, given := all[name]; !given {
			continue
		}
		if of.WriteOnly {
			all[name], found = instead, true
		}
		if inside, is := all[name].(map[string]any); is && valuesOf(of).WriteOnly {
			for key := range inside {
				inside[key], found = instead, true
			}
		}
	}
	if text, err := jsonText(all, ""); found && err == nil {
		return text
	}
	return body
}

// question asks before an operation that cannot be undone.
func (t trial) question(path string) question {
	word := t.ID
	for _, p := range t.Parameters {
		if p.In == "path" {
			word = t.texts(p)[0]
		}
	}
	hidden := map[string]string{}
	for name := range t.v.r.PostForm {
		if name != "form" && name != "typed" {
			hidden[name] = t.v.r.PostForm.Get(name)
		}
	}
	at := t.v.link("/try/" + t.ID)
	return question{Title: t.Summary, Name: word, Does: "Send " + t.Method, Post: at, Back: at, Final: true, Word: word,
		About: t.Method + " " + path + " is sent with your rights. It cannot be undone.", Hidden: hidden}
}

// send sends the request, and shows the answer.
func (t trial) send(path string, header http.Header) error {
	var body []byte
	if text := strings.TrimSpace(t.body()); t.hasBody() && text != "" {
		body = []byte(text)
	}
	ctx, cancel := context.WithTimeout(from(t.v.r), t.v.tryTime)
	defer cancel()
	began := time.Now()
	late := croft.Errorf(croft.Unavailable, "no whole answer came within %s: what was ordered may go on, so look at it "+
		"before you send this again", wording.Duration(t.v.tryTime))
	answer, err := t.v.client.Once(ctx, t.Method, path, body, header)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = late
		}
		return t.refuse(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusUnauthorized {
		return errNoSession
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostRead+1))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return t.refuse(late)
	}
	if err != nil {
		return t.refuse(croft.Errorf(croft.Unavailable, "the answer breaks off: %w", err))
	}
	a := tried{Status: fmt.Sprint(answer.StatusCode, " ", http.StatusText(answer.StatusCode)),
		Good: answer.StatusCode < http.StatusBadRequest,
		Took: wording.Duration(max(time.Since(began).Round(time.Millisecond), time.Millisecond))}
	for _, name := range []string{"Content-Type", "ETag", "Location", "Retry-After", "X-Request-Id"} {
		if value := answer.Header.Get(name); value != "" {
			a.Headers = append(a.Headers, fact{name, value})
		}
	}
	a.Body, a.Note = readable(text, answer.Header.Get("Content-Type"))
	status := http.StatusOK
	if !a.Good {
		status = answer.StatusCode
	}
	return t.show(status, &a, nil)
}

// readable returns what the page shows of the body of an answer, and a sentence about the rest.
func readable(body []byte, kind string) (text, note string) {
	whole := len(body) <= mostRead
	if len(body) == 0 {
		return "", "The answer has no body."
	}
	if whole && strings.Contains(kind, "json") {
		body = bytes.TrimSuffix(indented(body, ""), []byte("\n"))
	}
	cut := len(body) > mostTold
	if cut {
		body = body[:mostTold]
		for len(body) > 0 && !utf8.Valid(body[max(0, len(body)-utf8.UTFMax):]) && !utf8.RuneStart(body[len(body)-1]) {
			body = body[:len(body)-1]
		}
	}
	switch {
	case !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0:
		return "", "The body is " + cmp.Or(kind, "no text") + " and is not shown: the command writes it into a file."
	case cut:
		return string(body), "The body is longer: this is the beginning."
	}
	return string(body), ""
}

// refuse shows the form again, with the reason why there is no answer.
func (t trial) refuse(err error) error { return t.show(croft.HTTPStatus(err), nil, err) }

// show shows the form, with the answer to it or the reason why there is none.
func (t trial) show(status int, a *tried, refused error) error {
	p := trialPage{known: t.known, About: manual.Text(t.Description), Fields: t.fields(), Final: final(t.known),
		Answer: a, Post: t.v.link("/try/" + t.ID), Command: t.command()}
	if refused != nil {
		p.refusal = refusal{Says: refused.Error()}
	}
	if !access.MayAnywhere(t.May, t.v.caller.Roles) {
		p.Denied = "It has no button: your roles do not permit this operation."
	}
	if t.hasBody() {
		p.Body = t.withoutSecrets(t.body(), "")
		p.Rows = min(max(strings.Count(p.Body, "\n")+3, 6), 30)
		document, _ := parsed() // succeeded before
		p.Inside = slices.DeleteFunc(document.inputs(t.operation), func(i input) bool { return i.In != "body" })
	}
	return t.v.show(status, "try", "Try: "+t.Summary, p)
}

// fields returns the parameters with what the user wrote.
func (t trial) fields() (all []field) {
	inOrder := slices.Clone(t.Parameters)
	slices.SortStableFunc(inOrder, func(a, b parameter) int { return requiredFirst(a.Required, b.Required) })
	for _, p := range inOrder {
		f := field{Name: "in." + p.Name, Label: p.Name + " (" + p.In + ")", Help: p.Description, Kind: "text",
			Choices: p.Schema.Enum, Required: p.Required, MaxLength: p.Schema.MaxLength,
			Value: strings.Join(t.texts(p), "\n")}
		switch kind := p.Schema.kind(); {
		case p.Schema.Items != nil:
			f.Kind, f.Help, f.MaxLength = "block", f.Help+" One in a line.", 0
		case kind == "boolean":
			f.Kind, f.Choices = "choice", []string{"true", "false"}
		case len(f.Choices) > 0:
			f.Kind = "choice"
		case kind == "integer":
			f.Kind = "number"
		}
		if p.Schema.Default != nil {
			f.Help += fmt.Sprintf(" Empty: %v.", p.Schema.Default)
		}
		f.Help = strings.TrimSpace(f.Help)
		all = append(all, f)
	}
	return all
}

// command returns the command of curl that sends the same request.
func (t trial) command() equivalent {
	e := equivalent{ID: "same-call", Title: "The same with curl"}
	o := operationOf(t.ID)
	if o.Status == http.StatusSwitchingProtocols {
		return equivalent{}
	}
	path, header, err := t.request(false)
	if err != nil {
		path, header = t.Path, http.Header{}
	}
	text := curl
	switch {
	case o.Events != nil:
		text += "-N "
	case o.Media != "" && !strings.Contains(o.Media, "json"):
		text += "-o FILE "
	}
	if t.Method != http.MethodGet && (t.Method != http.MethodPost || !t.hasBody()) {
		text += "-X " + t.Method + " "
	}
	text += `"$CROFT_URL"` + shellWord(path)
	for name := range header {
		text += " -H " + shellWord(name+": "+header.Get(name))
	}
	if t.v.chosen != "" && !strings.Contains(path, "project=") {
		text += " -H " + shellWord(access.ProjectHeader+": "+string(t.v.chosen))
	}
	if o.Takes != "" {
		text += " -H " + shellWord("Content-Type: "+o.Takes) + " --data-binary @FILE"
	}
	if body := strings.TrimSpace(t.body()); t.hasBody() && body != "" {
		text += " --json " + shellWord(t.withoutSecrets(body, "(not shown)"))
	}
	e.Text = text + "\n"
	e.withhold()
	return e
}

// operationOf returns an operation of the table.
func operationOf(id string) control.Operation {
	all := control.Operations()
	return all[slices.IndexFunc(all, func(o control.Operation) bool { return o.ID == id })]
}
