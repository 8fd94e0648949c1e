package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"croft"
	"croft/cluster"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/httpapi"
	"croft/tenant/access"
)

// Operation declares an operation of the API: the only place where its properties are written down. Its route,
// authorization, entries in the action log, headers, document and client are derived from it.
type Operation struct {
	ID          string      // operationId in the document, and name in the action log
	At          string      // method and path, as in "GET /v1/keys/{name}"
	May         access.Rule // the roles that may call it
	Open        bool        // also for callers without credentials
	Lasting     bool        // grants rights that would outlive those of a caller from another cloud
	Personal    bool        // concerns objects that belong to the caller in person
	Summary     string
	Description string
	Log         logged       // whether it belongs in the action log
	Object      actions.Kind // kind of its object there; by default the tag of its noun, in the singular
	Stream      bool         // the client ends the answer
	Long        bool         // it has no time limit other than the connection and the credentials of the client
	Status      int          // of a complete answer; by default 200, or 204 if the answer is empty
	Also        []int        // other statuses of a complete answer
	Fails       []int        // statuses of refusals besides those that Problems derives
	Media       string       // type of an answer that the operation writes itself; other answers are application/json
	Takes       string       // type of a body that is not read into the input; other bodies are application/json
	Events      Events       // of an answer of the type text/event-stream
	Conflict    api.Code     // for errors of the kind Conflict; by default bad_state

	Method, Path string       // both parts of At
	Tag          string       // of its noun
	About        string       // description of its noun
	Home         bool         // of its noun
	In, Out      reflect.Type // of its input and its result; Out is nil if the operation writes its answer itself
	Parameters   []api.Parameter
	Entry        reflect.Type // of the entries of a list with the parameters of api.Listing; nil: it is no such list

	serve func(*call) error
}

// Events maps the types of server-sent events to the types of their data. An event without a type is a message.
type Events map[string]reflect.Type

// Types of answers that are not JSON.
const (
	eventStream = "text/event-stream"
	bytesMedia  = "application/octet-stream"
	pngMedia    = "image/png"
)

// accepted is for operations that also answer before what they ordered is done.
var accepted = []int{http.StatusAccepted}

// noun is the operations on one kind of object: a tag of the document.
type noun struct {
	Tag, Description string
	Object           actions.Kind // kind of the objects in the action log; by default the tag in the singular
	Home             bool         // the objects always belong to a project, which is croft.DefaultProject by default
	Operations       []Operation
}

// logged says whether requests of an operation belong in the action log.
type logged int

const (
	unlessGet logged = iota
	never            // reads with POST, because they have a body
	always           // GET that upgrades the connection
)

// nothing is the result of an operation that answers without a body.
type nothing struct{}

// do declares an operation with a typed input and result. Fields of In are parameters, see api.Input, or fields of
// the JSON body. An error is the answer. The header ETag has the version of the result, see entityTag. If a change is
// based on a generation in If-Match, the kind Conflict means that this generation is not the current one.
func do[In, Out any](o Operation, f func(context.Context, *call, In) (Out, error)) Operation {
	o.setInput(reflect.TypeFor[In]())
	o.Out = reflect.TypeFor[Out]()
	o.serve = func(c *call) error {
		var in In
		if err := c.input(&in); err != nil {
			return err
		}
		ctx, end := c.limit()
		defer end()
		out, err := f(ctx, c, in)
		if err != nil {
			return c.conflict(in, err)
		}
		return c.reply(out)
	}
	return o
}

// list declares an operation whose result is a list. It has the parameters of In and of api.Listing.
func list[In, Out any](o Operation, f func(context.Context, *call, In) (Out, error)) Operation {
	o.Entry, _ = api.EntryOf(reflect.TypeFor[Out]())
	listing := api.InputOf(reflect.TypeFor[api.Listing]())
	return do(o, func(ctx context.Context, c *call, in In) (out Out, err error) {
		var l api.Listing
		if err := listing.Read(c.r, c.query, &l); err != nil {
			return out, err
		}
		matches, err := l.Matching(c.operation.Entry)
		if err != nil {
			return out, err
		}
		if out, err = f(ctx, c, in); err == nil {
			l.Page(&out, matches)
		}
		return out, err
	})
}

// setInput sets the input of the operation, and the parameters: those of the input, and of a list the others of lists.
func (o *Operation) setInput(in reflect.Type) {
	o.In, o.Parameters = in, slices.Clip(api.InputOf(in).Parameters)
	if o.Entry == nil {
		return
	}
	for _, p := range api.ListingOf(o.Entry) {
		if !slices.ContainsFunc(o.Parameters, func(own api.Parameter) bool { return own.Name == p.Name }) {
			o.Parameters = append(o.Parameters, p)
		}
	}
}

// stream declares an operation with a typed input that writes its answer itself, after call.begin, or that upgrades the
// connection. An error that it returns is the answer, so it must be returned before anything is written.
func stream[In any](o Operation, f func(*call, In) error) Operation {
	o.setInput(reflect.TypeFor[In]())
	o.serve = func(c *call) error {
		var in In
		if err := c.input(&in); err != nil {
			return err
		}
		return f(c, in)
	}
	return o
}

// begin starts an answer that the operation writes itself, of the type that the operation declares.
func (c *call) begin() {
	c.w.Header().Set("Content-Type", c.operation.Media)
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusOK)
}

// input reads the parameters and the body of the request.
func (c *call) input(into any) error {
	in := api.InputOf(reflect.TypeOf(into).Elem())
	if err := in.Read(c.r, c.query, into); err != nil || !in.Body {
		return err
	}
	return c.body(into)
}

// limit returns the context of the operation.
func (c *call) limit() (context.Context, func()) {
	if c.operation.Long {
		return c.lasting()
	}
	ctx, cancel := c.brief()
	return ctx, cancel
}

// conflict gives an error of the kind Conflict the code that it has for this operation.
func (c *call) conflict(in any, err error) error {
	if _, is := errors.AsType[*api.Problem](err); is || !errors.Is(err, croft.Conflict) {
		return err
	}
	if api.InputOf(c.operation.In).Base(in).Given() {
		return api.NewProblem(api.GenerationMismatch, err.Error())
	}
	if c.operation.Conflict != "" {
		return api.NewProblem(c.operation.Conflict, err.Error())
	}
	return err
}

// reply answers with the result of the operation, and with its generation in the header ETag.
func (c *call) reply(out any) error {
	if out == (nothing{}) {
		c.w.WriteHeader(cmp.Or(c.status, http.StatusNoContent))
		return nil
	}
	if tag := entityTag(out); tag != "" && !c.untagged {
		c.w.Header().Set("ETag", tag)
	}
	httpapi.Answer(c.w, cmp.Or(c.status, c.operation.Status, http.StatusOK), out)
	return nil
}

// versioned is a result that has another entity tag than its generation; empty: none.
type versioned interface{ EntityTag() string }

// entityTag returns the header ETag for a result, for If-Match in the next request; empty: it has none. The entity tag
// of an object fits no later object of the same name.
func entityTag(out any) string {
	if v, is := out.(versioned); is {
		return v.EntityTag()
	}
	v := reflect.Indirect(reflect.ValueOf(out))
	if v.Kind() != reflect.Struct {
		return ""
	}
	if g := v.FieldByName("Generation"); g.IsValid() && g.Kind() == reflect.Int64 {
		return api.EntityTag(g.Int())
	}
	return ""
}

// base returns the generation that a change has to find, which its write compares, for the If-Match of the request.
// Nil: any. now returns the present generation; NotFound: the object does not exist.
func base(m api.Match, now func() (int64, error)) (*int64, error) {
	if !m.Given() {
		return nil, nil
	}
	g, err := now()
	switch {
	case errors.Is(err, croft.NotFound):
		if g = 0; !m.AcceptsNone() {
			return nil, mismatch("nothing has this name, or what had it was removed")
		}
	case err != nil:
		return nil, err
	case !m.Accepts(api.EntityTag(g)):
		return nil, mismatch("it has generation " + strconv.FormatInt(g, 10) + ": another request changed it")
	}
	return &g, nil
}

// mismatch returns the refusal of a change whose If-Match does not accept the present version of its object.
func mismatch(why string) error {
	return api.NewProblem(api.GenerationMismatch, "If-Match does not fit the object: "+why+"; read it again")
}

// Operations returns the table of operations, in the order of the document.
func Operations() []Operation {
	var all []Operation
	for _, n := range nouns() {
		for _, o := range n.Operations {
			o.Tag, o.About, o.Home = n.Tag, n.Description, n.Home
			o.Method, o.Path, _ = strings.Cut(o.At, " ")
			o.Object = cmp.Or(o.Object, n.Object, actions.Kind(strings.TrimSuffix(n.Tag, "s")))
			all = append(all, o)
		}
	}
	return all
}

// action returns what the operation does, for the middle of a sentence: its summary without what follows a semicolon.
func (o Operation) action() string {
	text, _, _ := strings.Cut(o.Summary, ";")
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToLower(first)) + text[size:]
}

// access returns the operation as access.Authorize needs it.
func (o Operation) access() access.Operation {
	return access.Operation{Action: o.action(), Rule: o.May, Lasting: o.Lasting, Personal: o.Personal}
}

// Problems returns the statuses of all refusals of the operation, sorted.
func (o Operation) Problems() []int {
	all := append([]int{http.StatusBadRequest, http.StatusInternalServerError, http.StatusServiceUnavailable},
		o.Fails...)
	if !o.Open {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests)
	}
	for _, p := range o.Parameters {
		switch {
		case p.In == "path" || p.Name == "project":
			all = append(all, http.StatusNotFound)
		case p.Name == "If-Match":
			all = append(all, http.StatusPreconditionFailed)
			if p.Required {
				all = append(all, http.StatusPreconditionRequired)
			}
		}
	}
	if o.hidden() {
		all = append(all, http.StatusNotFound)
	}
	if o.Method != http.MethodGet {
		all = append(all, http.StatusConflict)
	}
	if o.Conflict != "" {
		all = append(all, o.Conflict.Status())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// hidden reports whether callers who may not do the operation are told that there is nothing.
func (o Operation) hidden() bool { return o.Tag == "hosts" }

// logs reports whether requests of the operation belong in the action log.
func (o Operation) logs() bool {
	return o.Log == always || o.Log == unlessGet && o.Method != http.MethodGet
}

// regarding sets the object of the request. An invalid name is left out.
func (c *call) regarding(project croft.Project, kind actions.Kind, id, name string) {
	if cluster.CheckName(string(kind), name) != nil {
		name = ""
	}
	c.action.about(project, actions.Object{Kind: kind, ID: id, Name: name})
}

// hidden is the answer about an object that is not found, or is in a project that the caller does not see. Operators
// see all projects, so their answer is err.
func (c *call) hidden(what, name string, err error) error {
	if c.caller.Operator() && err != nil {
		return err
	}
	return api.Hidden(what, name)
}
