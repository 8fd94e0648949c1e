package edit

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
)

// WatchMark begins the comments of the watch, which say that it wrote a state.
const WatchMark = "watch "

// comment is the comment of the watch on the line of a state, with what ends it before the comment of somebody else.
var comment = regexp.MustCompile(`# ` + WatchMark + `[^;]*(; )?`)

// Marked reports whether the text of a node's file says that the watch wrote its state.
func Marked(text string) bool {
	top, err := mapping(text)
	if err != nil || top == nil {
		return false
	}
	_, value := find(top, "state")
	if value == nil {
		return false
	}
	lines := strings.SplitAfter(text, "\n")
	return value.Line <= len(lines) && comment.MatchString(afterScalar(lines[value.Line-1], value))
}

// StateText writes a state into the text of a node's file, and keeps everything else: comments, order and layout. why
// is a comment to go with it, before what others wrote there; one of the watch that is there is replaced. Invalid: the
// file has a form in which that cannot be done.
func StateText(file, text, to, why string) (string, error) {
	if strings.ContainsAny(why, "\n\r") || strings.HasPrefix(why, WatchMark) && strings.Contains(why, ";") {
		return "", croft.Errorf(croft.Invalid, "write the state of %s: the comment %q has a line break or semicolon",
			file, why)
	}
	if strings.ContainsAny(strings.ReplaceAll(text, "\r\n", "\n"), "\r\u0085\u2028\u2029\ufeff") {
		return "", croft.Errorf(croft.Invalid, "write the state of %s: it has line ends or marks that only YAML knows",
			file)
	}
	top, err := mapping(text)
	if err != nil {
		return "", croft.Errorf(croft.Invalid, "write the state of %s: %w", file, err)
	}
	after := set(text, top, to, why)
	if err := same(text, after, to); err != nil {
		return "", croft.Errorf(croft.Invalid,
			"write the state of %s: its form is not understood (%w): write state: %s "+
				"into it by hand", file, err, to)
	}
	return after, nil
}

// mapping returns the top of a document; nil: it is empty.
func mapping(text string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].ShortTag() == "!!null" {
		return nil, nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, croft.Errorf(croft.Invalid, "it is no map of keys and values")
	}
	return doc.Content[0], nil
}

// find returns a key of a map and its value; nil: it is not there.
func find(top *yaml.Node, key string) (k, v *yaml.Node) {
	for i := 0; i+1 < len(top.Content); i += 2 {
		if top.Content[i].Value == key {
			return top.Content[i], top.Content[i+1]
		}
	}
	return nil, nil
}

func set(text string, top *yaml.Node, to, why string) string {
	lines := strings.SplitAfter(text, "\n")
	end := "\n"
	if strings.Contains(text, "\r\n") {
		end = "\r\n"
	}
	if top != nil {
		if _, value := find(top, "state"); value != nil {
			at := value.Line - 1
			lines[at] = replaced(lines[at], value, to, why)
			return strings.Join(lines, "")
		}
		if top.Style&yaml.FlowStyle != 0 {
			return inFlow(lines, top, to, why)
		}
	}
	line := "state: " + to + commented(why) + end
	at := len(lines)
	for i, l := range lines { // before the mark that ends a document
		if strings.TrimRight(l, " \r\n") == "..." {
			at = i
		}
	}
	if at > 0 && lines[at-1] != "" && !strings.HasSuffix(lines[at-1], "\n") {
		lines[at-1] += end
	}
	return strings.Join(slices.Insert(lines, at, line), "")
}

func commented(why string) string {
	if why == "" {
		return ""
	}
	return "  # " + why
}

// columns returns what of a line comes before a scalar, and the bytes that it has there. Columns count characters.
func columns(line string, value *yaml.Node) (before, rest string) {
	runes := []rune(line)
	at := min(value.Column-1, len(runes))
	return string(runes[:at]), string(runes[at:])
}

// scalarForm is a scalar as it is written in one line: quoted, or plain until a comment or the end of a value.
var scalarForm = regexp.MustCompile(`^("[^"]*"|'[^']*'|[A-Za-z0-9_.-]*)`)

func afterScalar(line string, value *yaml.Node) string {
	_, rest := columns(line, value)
	return rest[len(scalarForm.FindString(rest)):]
}

// replaced puts another scalar in the place of one, and a comment behind it. What others commented there stays.
func replaced(line string, value *yaml.Node, to, why string) string {
	before, _ := columns(line, value)
	after := afterScalar(line, value)
	body := strings.TrimRight(after, "\r\n")
	end := after[len(body):]
	if value.Value == "" && !strings.HasSuffix(before, " ") {
		before += " " // state: with no value
	}
	body = comment.ReplaceAllStringFunc(body, func(c string) string {
		if strings.HasSuffix(c, "; ") {
			return "# " // somebody else's comes behind it
		}
		return ""
	})
	body = strings.TrimRight(body, " ")
	if why == "" {
		return before + to + body + end
	}
	if code, other, has := strings.Cut(body, "# "); has && strings.TrimLeft(code, " ,}") == "" {
		if other == why || strings.HasPrefix(other, why+"; ") {
			return before + to + body + end // it was told before
		}
		return before + to + code + "# " + why + "; " + other + end
	}
	return before + to + body + commented(why) + end
}

// inFlow adds the state to a map in braces.
func inFlow(lines []string, top *yaml.Node, to, why string) string {
	at := top.Line - 1
	before, rest := columns(lines[at], top)
	added := "{state: " + to
	if len(top.Content) > 0 {
		added += ", "
	}
	rest = strings.TrimPrefix(rest, "{")
	body := strings.TrimRight(rest, "\r\n")
	if strings.Contains(body, "#") || why == "" {
		lines[at] = before + added + rest
	} else {
		lines[at] = before + added + body + commented(why) + rest[len(body):]
	}
	return strings.Join(lines, "")
}

// same checks that nothing but the state has changed.
func same(before, after, to string) error {
	var old, now map[string]any
	if err := yaml.Unmarshal([]byte(before), &old); err != nil {
		return err
	}
	if err := yaml.Unmarshal([]byte(after), &now); err != nil {
		return err
	}
	if now["state"] != to {
		return fmt.Errorf("the state would be %v", now["state"])
	}
	delete(old, "state")
	delete(now, "state")
	if len(old)+len(now) > 0 && !reflect.DeepEqual(old, now) {
		return fmt.Errorf("other values would change")
	}
	return nil
}
