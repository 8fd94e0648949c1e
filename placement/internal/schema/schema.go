// Package schema reads JSON values, checks them against JSON schemas, and reports errors in the sentences of Python's
// jsonschema, since clients of Placement show and compare them, with the failed rule and the property.
package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a JSON schema, compiled at its first use: a program has many, and most commands use none.
type Schema struct {
	text string

	once     sync.Once
	compiled *jsonschema.Schema
	quick    *jsonschema.Schema // accepts the same values, see quicken
	document any                // the schema as a value
	order    map[string]int     // JSON pointer -> position in the text
}

// Must returns the schema of a constant text. An invalid text panics at its first use.
func Must(text string) *Schema { return &Schema{text: text} }

// Validate returns the most relevant error in a value; nil: the value is valid.
func (s *Schema) Validate(v Document) error {
	s.once.Do(s.compile)
	if s.quick.Validate(v.tree) == nil {
		return nil
	}
	err := s.compiled.Validate(v.tree)
	if err == nil {
		return nil
	}
	return s.explain(v, err.(*jsonschema.ValidationError))
}

// name is the URL under which the compiler stores a schema. It is never fetched.
const name = "schema:placement"

func (s *Schema) compile() {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(s.text))
	if err != nil {
		panic(fmt.Sprintf("schema: %v in %s", err, s.text))
	}
	s.document = document
	s.order = positions([]byte(s.text))
	s.compiled, s.quick = s.compiler().MustCompile(name), s.compiler().MustCompile(name)
	quicken(s.quick)
}

func (s *Schema) compiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.RegisterFormat(&jsonschema.Format{Name: "uuid", Validate: checkUUID})
	c.UseRegexpEngine(compilePattern)
	if err := c.AddResource(name, s.document); err != nil {
		panic(fmt.Sprintf("schema: %v in %s", err, s.text))
	}
	return c
}

// quicken makes a schema accept common integers by a comparison, because the validator spends a third of its time on
// converting them to fractions. All other numbers are left to the validator.
func quicken(s *jsonschema.Schema) {
	for _, part := range s.Properties {
		quicken(part)
	}
	for _, part := range s.PatternProperties {
		quicken(part)
	}
	if s.Items2020 != nil {
		quicken(s.Items2020)
	}
	if s.Types == nil || !slices.ContainsFunc(s.Types.ToStrings(), func(t string) bool {
		return t == "integer" || t == "number"
	}) {
		return
	}
	slow := *s
	least, most := bound(s.Minimum, math.Inf(-1)), bound(s.Maximum, math.Inf(1))
	*s = jsonschema.Schema{DraftVersion: s.DraftVersion, Location: s.Location, Format: &jsonschema.Format{
		Validate: func(v any) error {
			if n, ok := v.(int64); ok && n == int64(int32(n)) && least <= float64(n) && float64(n) <= most {
				return nil
			}
			return slow.Validate(v)
		}}}
}

func bound(given *big.Rat, otherwise float64) float64 {
	if given == nil {
		return otherwise
	}
	f, _ := given.Float64()
	return f
}

// positions numbers the values of a valid JSON text, by JSON pointer.
func positions(text []byte) map[string]int {
	order := map[string]int{}
	if len(text) > 0 {
		number(json.NewDecoder(bytes.NewReader(text)), "", order)
	}
	return order
}

func number(d *json.Decoder, pointer string, order map[string]int) {
	if _, repeated := order[pointer]; !repeated {
		order[pointer] = len(order)
	}
	token, _ := d.Token()
	delim, nested := token.(json.Delim)
	if !nested {
		return
	}
	for i := 0; d.More(); i++ {
		key := fmt.Sprint(i)
		if delim == '{' {
			token, _ := d.Token()
			key = token.(string)
		}
		number(d, join(pointer, key), order)
	}
	_, _ = d.Token() // the closing bracket
}

// join appends a key to a JSON pointer.
func join(pointer, key string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

func checkUUID(v any) error {
	if s, ok := v.(string); !ok || !IsUUID(s) {
		return fmt.Errorf("not a UUID")
	}
	return nil
}

// IsUUID reports whether s is a UUID, with or without dashes, in either case, as liberally as the original.
func IsUUID(s string) bool {
	_, ok := UUID(s)
	return ok
}

// UUID returns the dashed, lower-case form of a string that IsUUID accepts.
func UUID(s string) (string, bool) {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "urn:", ""), "uuid:", "")
	s = strings.ToLower(strings.ReplaceAll(strings.Trim(s, "{}"), "-", ""))
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" {
		return "", false
	}
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], true
}

// pattern is a regular expression in which $ also matches before a final newline, as in Python.
type pattern struct{ *regexp.Regexp }

func compilePattern(text string) (jsonschema.Regexp, error) {
	re, err := regexp.Compile(text)
	return pattern{re}, err
}

func (p pattern) MatchString(s string) bool {
	return p.Regexp.MatchString(s) || strings.HasSuffix(s, "\n") && p.Regexp.MatchString(s[:len(s)-1])
}
