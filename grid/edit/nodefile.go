package edit

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/lazyregexp"
)

// WatchMark is the prefix of the comments that the watch writes next to a state that it set.
const WatchMark = "watch "

// comment matches the watch's comment on the line of a state, including the "; " that separates it from a comment by
// another author.
var comment = lazyregexp.New(`# ` + WatchMark + `[^;]*(; )?`)

// Marked reports whether the text of a node's file says that the watch set its state.
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

// StateText sets the state in the text of a node's file, and keeps everything else: comments, order and layout. why is
// added as a comment before comments by other authors, and replaces an earlier comment of the watch. Errors: Invalid if
// the file's format does not allow that.
func StateText(file, text, to, why string) (string, error) {
	if strings.ContainsAny(why, "\n\r") || strings.HasPrefix(why, WatchMark) && strings.Contains(why, ";") {
		return "", croft.Errorf(croft.Invalid, "write the state of %s: the comment %q has a line break or semicolon",
			file, why)
	}
	if strings.ContainsAny(strings.ReplaceAll(text, "\r\n", "\n"), "\r\u0085\u2028\u2029\ufeff") {
		return "", croft.Errorf(croft.Invalid, "write the state of %s: it contains special line breaks of YAML",
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

// mapping returns the top-level map of a document, or nil if the document is empty.
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

// find returns a key of a map and its value, or nil if the map does not have the key.
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
	for i, l := range lines { // before the end-of-document marker
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

// columns splits a line at the start of a scalar. The columns of a yaml.Node count characters, not bytes.
func columns(line string, value *yaml.Node) (before, rest string) {
	runes := []rune(line)
	at := min(value.Column-1, len(runes))
	return string(runes[:at]), string(runes[at:])
}

// scalarForm matches a scalar on one line: quoted, or plain up to a comment or the end of the value.
var scalarForm = lazyregexp.New(`^("[^"]*"|'[^']*'|[A-Za-z0-9_.-]*)`)

func afterScalar(line string, value *yaml.Node) string {
	_, rest := columns(line, value)
	return rest[len(scalarForm.Get().FindString(rest)):]
}

// replaced replaces a scalar in its line and appends a comment. Comments by other authors stay.
func replaced(line string, value *yaml.Node, to, why string) string {
	before, _ := columns(line, value)
	after := afterScalar(line, value)
	body := strings.TrimRight(after, "\r\n")
	end := after[len(body):]
	if value.Value == "" && !strings.HasSuffix(before, " ") {
		before += " " // a key without a value
	}
	body = comment.Get().ReplaceAllStringFunc(body, func(c string) string {
		if strings.HasSuffix(c, "; ") {
			return "# " // a comment by another author follows
		}
		return ""
	})
	body = strings.TrimRight(body, " ")
	if why == "" {
		return before + to + body + end
	}
	if code, other, has := strings.Cut(body, "# "); has && strings.TrimLeft(code, " ,}") == "" {
		if other == why || strings.HasPrefix(other, why+"; ") {
			return before + to + body + end // the comment is already present
		}
		return before + to + code + "# " + why + "; " + other + end
	}
	return before + to + body + commented(why) + end
}

// inFlow adds the state to a map in flow style (braces).
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

// same returns an error if anything but the state differs between before and after.
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
