package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"

	"croft/control/api"
)

// call sends the request of an operation, whose method and path at holds, and returns its result.
func call[Out any](ctx context.Context, c *Client, at string, input any) (out Out, err error) {
	answer, err := c.request(ctx, at, input)
	if err != nil {
		return out, err
	}
	defer answer.Body.Close()
	err = c.decode(ctx, answer, &out)
	if i, is := any(&out).(*api.Instance); is {
		i.ETag = answer.Header.Get("ETag")
	}
	return out, err
}

// request sends the request of an operation, and returns the answer unless it is an error. The caller must close its
// body.
func (c *Client) request(ctx context.Context, at string, input any) (*http.Response, error) {
	method, path, _ := strings.Cut(at, " ")
	header := http.Header{}
	var body []byte
	var which []api.Listing
	if list, is := input.(listed); is {
		input, which = list.input, list.which
	}
	if input != nil {
		in := api.InputOf(reflect.TypeOf(input))
		if err := in.CheckPath(input); err != nil {
			return nil, err
		}
		path = in.Write(path, input, header)
		if in.Body {
			var err error
			if body, err = json.Marshal(input); err != nil {
				return nil, err
			}
		}
	}
	for _, l := range which {
		path = withQuery(path, pathOf("", l))
	}
	answer, err := c.send(ctx, method, path, body, header)
	if strings.Contains(at, " /v1/hosts") {
		err = c.denied(ctx, err)
	}
	return answer, err
}

// pathOf returns the path of a request with an input that has no headers and no body.
func pathOf(path string, input any) string {
	return api.InputOf(reflect.TypeOf(input)).Write(path, input, http.Header{})
}

// listed is the input of a list, and which of its entries to get.
type listed struct {
	input any
	which []api.Listing
}

// withQuery adds a query string, which starts with a ?, to a path that may have one.
func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		query = strings.Replace(query, "?", "&", 1)
	}
	return path + query
}

// do sends the request of an operation that has no result.
func (c *Client) do(ctx context.Context, at string, input any) error {
	answer, err := c.request(ctx, at, input)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Answer is the answer to a request that Send sent.
type Answer struct {
	Body json.RawMessage // empty: the operation has no result
	ETag string          // of the object in it; empty: none
}

// Send sends the request of an operation for callers that know it from the document only. path has the parameters;
// body is nil if the operation takes none.
func (c *Client) Send(ctx context.Context, method, path string, body []byte, header http.Header) (a Answer, err error) {
	answer, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return a, err
	}
	defer answer.Body.Close()
	a.ETag = answer.Header.Get("ETag")
	if a.Body, err = io.ReadAll(answer.Body); err != nil {
		return a, c.unreachable(ctx, err)
	}
	return a, nil
}
