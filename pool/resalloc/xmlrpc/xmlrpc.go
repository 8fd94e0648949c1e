// Package xmlrpc serves methods over XML-RPC, with nil and introspection, like the server in Python's standard
// library, so that its clients work unchanged. A client's input is bounded in size, depth and number of values.
package xmlrpc

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// faultCode is the code of every fault, as in Python's server.
const faultCode = 1

// Method is a function that clients can call. Params and result have the types of XML-RPC values: nil, bool, int64,
// float64, string, []byte, time.Time (only params), []any and map[string]any; a result may also be an int. An error
// becomes a fault with its text.
type Method struct {
	Help string
	Call func(ctx context.Context, params []any) (any, error)
}

// Handler serves methods, and system.listMethods, system.methodHelp and system.methodSignature about them. It
// authorizes no requests itself.
type Handler struct {
	methods map[string]Method
}

// NewHandler returns a handler of these methods, keyed by name.
func NewHandler(methods map[string]Method) *Handler {
	h := &Handler{methods: maps.Clone(methods)}
	h.methods["system.listMethods"] = Method{"The names of all methods.", func(context.Context, []any) (any, error) {
		var all []any
		for _, name := range slices.Sorted(maps.Keys(h.methods)) {
			all = append(all, name)
		}
		return all, nil
	}}
	h.methods["system.methodHelp"] = Method{"What a method is for.",
		func(_ context.Context, params []any) (any, error) {
			if len(params) != 1 {
				return nil, errors.New("system.methodHelp takes the name of one method")
			}
			name, _ := params[0].(string)
			return h.methods[name].Help, nil
		}}
	h.methods["system.methodSignature"] = Method{"Not told of any method.", func(context.Context, []any) (any, error) {
		return "signatures not supported", nil
	}}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "XML-RPC is spoken with POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := unpacked(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	text := h.answer(r.Context(), body)
	w.Header().Set("Content-Type", "text/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the client may be gone
}

// unpacked returns the body of a request, decompressed; the limit of a call applies to the decompressed body.
func unpacked(r *http.Request) (io.Reader, error) {
	switch encoding := strings.ToLower(r.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		return gzip.NewReader(io.LimitReader(r.Body, maxBytes))
	default:
		return nil, fmt.Errorf("the encoding %q is not supported", encoding)
	}
}

// answer reads a call, executes it and encodes its result.
func (h *Handler) answer(ctx context.Context, body io.Reader) []byte {
	c, err := readCall(body)
	if err != nil {
		return fault(faultCode, err.Error())
	}
	method, ok := h.methods[c.Method]
	if !ok {
		return fault(faultCode, fmt.Sprintf("there is no method %.100q", c.Method))
	}
	value, err := method.Call(ctx, c.Params)
	if err != nil {
		return fault(faultCode, err.Error())
	}
	text, err := response(value)
	if err != nil {
		return fault(faultCode, err.Error())
	}
	return text
}
