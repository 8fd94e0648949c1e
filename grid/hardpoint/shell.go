package hardpoint

import (
	"fmt"
	"strconv"
	"strings"

	"croft"
	"croft/grid/machine"
)

// Marks around the name of a shell variable in a value: the value is known only on the machine, such as the home
// directory there.
const (
	deferredBegin = "\uE000"
	deferredEnd   = "\uE001"
)

// Deferred returns a placeholder for the value that a shell variable has when the verb runs. It works in the result of
// Shell, and may be a part of a text. The variable's value may contain only letters, digits and /._-
func Deferred(variable string) string { return deferredBegin + variable + deferredEnd }

// Quote is like machine.Quote, but the shell expands deferred values.
func Quote(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		var b strings.Builder
		for rest := w; ; {
			before, after, found := strings.Cut(rest, deferredBegin)
			if before != "" || !found && b.Len() == 0 {
				b.WriteString(machine.Quote(before))
			}
			if !found {
				break
			}
			var name string
			name, rest, _ = strings.Cut(after, deferredEnd)
			b.WriteString(`"${` + name + `}"`)
		}
		quoted[i] = b.String()
	}
	return strings.Join(quoted, " ")
}

// Plain rejects texts that contain a deferred value's marks or a zero byte. Errors: Invalid.
func Plain(texts ...string) error {
	for _, t := range texts {
		if strings.ContainsAny(t, deferredBegin+deferredEnd+"\x00") {
			return croft.Errorf(croft.Invalid, "%.40q has a zero byte, or a character of Unicode's private use", t)
		}
	}
	return nil
}

// Exit codes of the result of Shell, in place of the codes that a verb lists as absent and no.
const (
	CodeAbsent = 111
	CodeNo     = 112
)

// Shell returns a verb as the body of a shell function. The function returns 0 for a code listed in ok, CodeAbsent or
// CodeNo for one listed in absent or no, and otherwise the program's exit code, or 1 if that is 0. Its input is the
// input that the verb defines, else the inherited one. Errors: Invalid.
func (p *Point) Shell(verb string, v Values) (string, error) {
	what := p.verbs[verb]
	if what == nil {
		return "", croft.Errorf(croft.Invalid, "%s: the %s %s has no verb %s", p.From, p.Kind, p.Name, verb)
	}
	s := scope{values: v, point: p}
	var body string
	var err error
	if what.script != "" {
		if body, err = s.script(what); err == nil {
			body = "(\n" + body + ")"
		}
	} else {
		var argv []string
		if argv, err = s.arguments(what.argv); err == nil {
			body = Quote(argv...)
		}
	}
	if err != nil {
		return "", p.at(what, verb, err)
	}
	if len(what.stdin) > 0 {
		s.secret = true
		input, err := s.text(what.stdin)
		if err != nil {
			return "", p.at(what, verb, err)
		}
		body = Print(input) + " | " + body
	}
	return body + "\ncase $? in\n" + when(what.ok, 0) + when(what.absent, CodeAbsent) + when(what.no, CodeNo) +
		"0) return 1 ;;\n*) return $? ;;\nesac\n", nil
}

// when returns the line of a case statement that returns code for each code in list.
func when(list []int, code int) string {
	texts := make([]string, len(list))
	for i, c := range list {
		texts[i] = strconv.Itoa(c)
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%s) return %d ;;\n", strings.Join(texts, "|"), code)
}

// Print returns a shell command that writes a text to standard output. It uses a shell builtin, so that the text is not
// an argument of a program.
func Print(text string) string {
	if !strings.ContainsRune(text, 0) {
		return "printf %s " + Quote(text)
	}
	text = strings.NewReplacer(`\`, `\\`, "\x00", `\0000`).Replace(text)
	return "printf %b " + Quote(text)
}

// List returns the expanded list variable of this name; an empty list if the file does not define it. Errors: Invalid.
func (p *Point) List(variable string, v Values) ([]string, error) {
	_, list, many, known, err := scope{values: v, point: p}.lookVariable("var."+variable, variable)
	if err == nil && known && !many {
		err = croft.Errorf(croft.Invalid, "%s: the variable %s is to be a list", p.From, variable)
	}
	return list, err
}
