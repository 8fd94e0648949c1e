package xmlrpc

import (
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits of a call, far above what clients need.
const (
	maxBytes  = 1 << 20
	maxDepth  = 32
	maxValues = 10_000
)

// errSize is the error of a call that exceeds the limits.
var errSize = errors.New("the call is larger than anybody needs")

// call is a request of a client.
type call struct {
	Method string
	Params []any
}

// decoder reads the elements of one call, without white space between them.
type decoder struct {
	xml    *xml.Decoder
	values int
}

// readCall reads a call from at most maxBytes of r. Values are nil, bool, int64, float64, string, []byte,
// time.Time, []any and map[string]any.
func readCall(r io.Reader) (call, error) {
	limited := &io.LimitedReader{R: r, N: maxBytes + 1}
	d := decoder{xml: xml.NewDecoder(limited)}
	d.xml.CharsetReader = func(name string, input io.Reader) (io.Reader, error) {
		switch strings.ToLower(name) {
		case "us-ascii", "ascii", "utf8":
			return input, nil
		}
		return nil, fmt.Errorf("the encoding %q is not UTF-8", name)
	}
	c, err := d.call()
	if limited.N <= 0 {
		err = errSize
	}
	if err != nil {
		return call{}, fmt.Errorf("no call of XML-RPC: %w", err)
	}
	return c, nil
}

func (d *decoder) call() (c call, err error) {
	if err := d.open("methodCall"); err != nil {
		return c, err
	}
	if err := d.open("methodName"); err != nil {
		return c, err
	}
	if c.Method, err = d.text("methodName"); err != nil {
		return c, err
	}
	c.Method = strings.TrimSpace(c.Method)
	t, err := d.next()
	if start, ok := t.(xml.StartElement); err == nil && ok && start.Name.Local == "params" {
		if c.Params, err = d.params(); err != nil {
			return c, err
		}
		t, err = d.next()
	}
	if err != nil {
		return c, err
	}
	return c, isEnd(t, "methodCall")
}

// params reads to the end of params.
func (d *decoder) params() ([]any, error) {
	var all []any
	for {
		t, err := d.next()
		if err != nil {
			return nil, err
		}
		if isEnd(t, "params") == nil {
			return all, nil
		}
		if err := isStart(t, "param"); err != nil {
			return nil, err
		}
		if err := d.open("value"); err != nil {
			return nil, err
		}
		v, err := d.value(0)
		if err != nil {
			return nil, err
		}
		if err := d.close("param"); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

// value reads to the end of a value whose start tag has been read. Text without a type is a string.
func (d *decoder) value(depth int) (any, error) {
	if d.values++; d.values > maxValues || depth > maxDepth {
		return nil, errSize
	}
	var text strings.Builder
	for {
		t, err := d.xml.Token()
		if err != nil {
			return nil, unfinished(err)
		}
		switch t := t.(type) {
		case xml.CharData:
			text.Write(t)
		case xml.EndElement:
			return text.String(), nil
		case xml.StartElement:
			v, err := d.typed(t.Name.Local, depth)
			if err != nil {
				return nil, err
			}
			return v, d.close("value")
		}
	}
}

// typed reads to the end of an element that names a type.
func (d *decoder) typed(kind string, depth int) (any, error) {
	switch kind {
	case "array":
		return d.array(depth)
	case "struct":
		return d.structure(depth)
	}
	text, err := d.text(kind)
	if err != nil {
		return nil, err
	}
	v, err := scalar(kind, text)
	if err != nil {
		return nil, fmt.Errorf("%q is no %s", text, kind)
	}
	return v, nil
}

func scalar(kind, text string) (any, error) {
	trimmed := strings.TrimSpace(text)
	switch kind {
	case "int", "i1", "i2", "i4", "i8":
		return strconv.ParseInt(trimmed, 10, 64)
	case "boolean":
		if trimmed != "0" && trimmed != "1" {
			return nil, errors.New("neither 0 nor 1")
		}
		return trimmed == "1", nil
	case "string":
		return text, nil
	case "double":
		f, err := strconv.ParseFloat(trimmed, 64)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, errors.New("not a number")
		}
		return f, err
	case "nil":
		return nil, nil
	case "base64":
		return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	case "dateTime.iso8601":
		return time.Parse("20060102T15:04:05", trimmed)
	}
	return nil, errors.New("a type that XML-RPC does not have")
}

func (d *decoder) array(depth int) (any, error) {
	if err := d.open("data"); err != nil {
		return nil, err
	}
	all := []any{}
	for {
		t, err := d.next()
		if err != nil {
			return nil, err
		}
		if isEnd(t, "data") == nil {
			return all, d.close("array")
		}
		if err := isStart(t, "value"); err != nil {
			return nil, err
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

func (d *decoder) structure(depth int) (any, error) {
	all := map[string]any{}
	for {
		t, err := d.next()
		if err != nil {
			return nil, err
		}
		if isEnd(t, "struct") == nil {
			return all, nil
		}
		if err := isStart(t, "member"); err != nil {
			return nil, err
		}
		if err := d.member(all, depth); err != nil {
			return nil, err
		}
	}
}

func (d *decoder) member(into map[string]any, depth int) error {
	if err := d.open("name"); err != nil {
		return err
	}
	name, err := d.text("name")
	if err != nil {
		return err
	}
	if err := d.open("value"); err != nil {
		return err
	}
	if into[name], err = d.value(depth + 1); err != nil {
		return err
	}
	return d.close("member")
}

// text reads to the end of an element that contains only text.
func (d *decoder) text(name string) (string, error) {
	var b strings.Builder
	for {
		t, err := d.xml.Token()
		if err != nil {
			return "", unfinished(err)
		}
		switch t := t.(type) {
		case xml.CharData:
			b.Write(t)
		case xml.EndElement:
			return b.String(), nil
		case xml.StartElement:
			return "", fmt.Errorf("<%s> has an element <%s>, where text belongs", name, t.Name.Local)
		}
	}
}

// next returns the next start or end of an element.
func (d *decoder) next() (xml.Token, error) {
	for {
		t, err := d.xml.Token()
		if err != nil {
			return nil, unfinished(err)
		}
		switch t := t.(type) {
		case xml.StartElement, xml.EndElement:
			return t, nil
		case xml.CharData:
			if text := strings.TrimSpace(string(t)); text != "" {
				return nil, fmt.Errorf("%.20q stands between elements", text)
			}
		}
	}
}

func (d *decoder) open(name string) error {
	t, err := d.next()
	if err != nil {
		return err
	}
	return isStart(t, name)
}

func (d *decoder) close(name string) error {
	t, err := d.next()
	if err != nil {
		return err
	}
	return isEnd(t, name)
}

func isStart(t xml.Token, name string) error {
	if start, ok := t.(xml.StartElement); ok && start.Name.Local == name {
		return nil
	}
	return fmt.Errorf("<%s> is missing", name)
}

func isEnd(t xml.Token, name string) error {
	if end, ok := t.(xml.EndElement); ok && end.Name.Local == name {
		return nil
	}
	return fmt.Errorf("</%s> is missing", name)
}

// unfinished returns the error for a document that ends early.
func unfinished(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("it ends in the middle")
	}
	return err
}
