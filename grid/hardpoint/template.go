package hardpoint

import (
	"strconv"
	"strings"

	"croft"
	"croft/grid/machine"
)

// Forms in which a reference converts a list to one text: ${sh:NAME} quotes it for a shell, ${lines:NAME} puts each
// item on its own line.
const (
	asShell = "sh:"
	asLines = "lines:"
)

func asText(form string, list []string) string {
	if form == asShell {
		return machine.Quote(list...) // quoting does not change deferred values
	}
	return strings.Join(list, "\n")
}

// A template is a text with references: its parts are literal text or references to values.
type template []part

type part struct {
	text string // literal text
	name string // the name of the value, if this part is a reference
	or   template
	isOr bool // or is a default
}

// parseTemplate parses ${name}, ${name:-default}, and $$ for a literal $. All else is literal text, including other
// uses of $, so that scripts keep their $x and $(...).
func parseTemplate(s string) (template, error) {
	t, rest, err := parseParts(s, false)
	if err == nil && rest != "" {
		err = croft.Errorf(croft.Invalid, "%q: a } too many", s)
	}
	return t, err
}

func parseParts(s string, inside bool) (template, string, error) {
	var t template
	text := ""
	flush := func() {
		if text != "" {
			t = append(t, part{text: text})
		}
		text = ""
	}
	for s != "" {
		switch {
		case inside && s[0] == '}':
			flush()
			return t, s, nil
		case strings.HasPrefix(s, "$$"):
			text += "$"
			s = s[2:]
		case strings.HasPrefix(s, "${"):
			flush()
			p, rest, err := parseReference(s[2:])
			if err != nil {
				return nil, "", err
			}
			t = append(t, p)
			s = rest
		default:
			text += s[:1]
			s = s[1:]
		}
	}
	if inside {
		return nil, "", croft.Errorf(croft.Invalid, "a ${ has no }")
	}
	flush()
	return t, "", nil
}

func parseReference(s string) (part, string, error) {
	form := ""
	for _, f := range []string{asShell, asLines} {
		if strings.HasPrefix(s, f) {
			form, s = f, s[len(f):]
		}
	}
	end := strings.IndexFunc(s, func(r rune) bool { return !isNameRune(r) })
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		return part{}, "", croft.Errorf(croft.Invalid,
			"${%.20s: a value's name is letters, digits, dots, - and _ (write "+
				"$${ for a ${ of the shell's own)", s)
	}
	p := part{name: form + s[:end]}
	s = s[end:]
	if name, ok := strings.CutSuffix(p.name, "-"); ok || strings.HasPrefix(s, ":-") {
		if ok {
			return part{}, "", croft.Errorf(croft.Invalid, "${%s-...}: a default is written ${%s:-...}", name, name)
		}
		def, rest, err := parseParts(s[2:], true)
		if err != nil {
			return part{}, "", err
		}
		p.or, p.isOr, s = def, true, rest
	}
	if !strings.HasPrefix(s, "}") {
		return part{}, "", croft.Errorf(croft.Invalid,
			"${%s%.10s: a } is wanted after the name (write $${ for a ${ of "+
				"the shell's own)", p.name, s)
	}
	return p, s[1:], nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)
}

// alone returns the name of the value if the template is a single reference without a default.
func (t template) alone() (string, bool) {
	if len(t) == 1 && t[0].name != "" && !t[0].isOr {
		return t[0].name, true
	}
	return "", false
}

// Values maps names to the values of references: a string, a Secret, a bool, an int, an int64, a float64, a []string,
// or a []Values for each. Any other type panics.
type Values map[string]any

// A Secret is a value that may not be used in an argument.
type Secret string

// scope looks up values: the given values, and the variables of the hard point, which may refer to both.
type scope struct {
	values Values
	point  *Point
	depth  int
	secret bool // secrets are allowed here
}

const maxDepth = 8

func (s scope) with(item Values) scope {
	more := make(Values, len(s.values)+len(item))
	for k, v := range s.values {
		more[k] = v
	}
	for k, v := range item {
		more["item."+k] = v
	}
	s.values = more
	return s
}

// look returns a value as a list or a text. known reports whether the name is defined.
func (s scope) look(name string) (text string, list []string, many, known bool, err error) {
	if form, of, ok := strings.Cut(name, ":"); ok {
		_, list, many, known, err := s.look(of)
		if err == nil && !many {
			err = croft.Errorf(croft.Invalid, "${%s}: %s is no list", name, of)
		}
		return asText(form+":", list), nil, false, known, err
	}
	if variable, ok := strings.CutPrefix(name, "var."); ok {
		return s.lookVariable(name, variable)
	}
	value, ok := s.values[name]
	if !ok {
		// Options are specific to a runtime; an option that is not set is empty.
		return "", nil, false, strings.HasPrefix(name, "option."), nil
	}
	switch v := value.(type) {
	case []string:
		return "", v, true, true, nil
	case []Values:
		return "", nil, false, true, croft.Errorf(croft.Invalid, "${%s} is a list of things: use each", name)
	case Secret:
		if !s.secret {
			return "", nil, false, true, croft.Errorf(croft.Invalid,
				"${%s} is secret, and may be used only in stdin, never in arguments", name)
		}
		return string(v), nil, false, true, nil
	default:
		return plain(value), nil, false, true, nil
	}
}

// lookVariable returns a variable: a given value, such as a node's own, overrides the variable of the hard point.
func (s scope) lookVariable(name, variable string) (text string, list []string, many, known bool, err error) {
	if given, ok := s.values[name].(string); ok {
		return given, nil, false, true, nil
	}
	v, ok := s.point.variables[variable]
	if !ok {
		return "", nil, false, false, nil
	}
	if s.depth++; s.depth > maxDepth {
		return "", nil, false, true, croft.Errorf(croft.Invalid, "${%s} refers to itself, or more than %d levels deep",
			name, maxDepth)
	}
	if v.many {
		list, err = s.arguments(v.list)
		return "", list, true, true, err
	}
	text, err = s.text(v.text)
	return text, nil, false, true, err
}

func plain(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		if v {
			return "true"
		}
		return ""
	case int:
		return strconv.Itoa(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	panic("hardpoint: a value of a type that no template knows")
}

func unknown(name string) error {
	return croft.Errorf(croft.Invalid, "${%s}: there is no such value (write $${%s} for a ${ of the shell's own)", name,
		name)
}

// text expands a template to one text.
func (s scope) text(t template) (string, error) {
	var b strings.Builder
	for _, p := range t {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		text, _, many, known, err := s.look(p.name)
		switch {
		case err != nil:
			return "", err
		case !known && !p.isOr:
			return "", unknown(p.name)
		case many:
			return "", croft.Errorf(croft.Invalid, "${%s} is a list: make it an argument of its own", p.name)
		case text == "" && p.isOr:
			if text, err = s.text(p.or); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// arguments expands a list of arguments: an argument that is only a reference to a list becomes the items of that list.
func (s scope) arguments(list []argument) ([]string, error) {
	var all []string
	for _, a := range list {
		some, err := s.argument(a)
		if err != nil {
			if !s.point.located(err) {
				err = &located{a.at, err}
			}
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (s scope) argument(a argument) ([]string, error) {
	switch {
	case a.each != "":
		return s.each(a)
	case a.structured:
		name, negate := a.when, false
		if a.unless != "" {
			name, negate = a.unless, true
		}
		holds, err := s.holds(name)
		if err != nil || holds == negate {
			return nil, err
		}
		return s.arguments(a.then)
	}
	if name, ok := a.text.alone(); ok {
		if _, list, many, _, err := s.look(name); many || err != nil {
			return list, err
		}
	}
	text, err := s.text(a.text)
	return []string{text}, err
}

func (s scope) each(a argument) ([]string, error) {
	value, ok := s.values[a.each]
	if strings.HasPrefix(a.each, "var.") {
		_, list, _, known, err := s.look(a.each)
		if err != nil {
			return nil, err
		}
		value, ok = list, known
	}
	if !ok {
		return nil, croft.Errorf(croft.Invalid, "each: %s: there is no such list", a.each)
	}
	var all []string
	switch v := value.(type) {
	case []Values:
		for _, item := range v {
			some, err := s.with(item).arguments(a.then)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	case []string:
		for _, item := range v {
			one := s.with(nil)
			one.values["item"] = item
			some, err := one.arguments(a.then)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	default:
		return nil, croft.Errorf(croft.Invalid, "each: %s is no list", a.each)
	}
	return all, nil
}

// holds evaluates a condition: NAME holds unless the value is empty, and NAME=TEXT if the value equals TEXT.
func (s scope) holds(condition string) (bool, error) {
	name, want, compare := strings.Cut(condition, "=")
	if v, ok := s.values[name].([]Values); ok && !compare {
		return len(v) > 0, nil
	}
	s.secret = true // a condition does not reveal the secret
	text, list, many, known, err := s.look(name)
	switch {
	case err != nil:
		return false, err
	case !known:
		return false, unknown(name)
	case many:
		return len(list) > 0, nil
	case compare:
		return text == want, nil
	}
	return text != "", nil
}
