package hardpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/internal/wording"
)

// A Result is the result of a verb's program.
type Result struct {
	Code    int    // the exit code
	Text    string // the standard output
	Absent  bool   // the exit code is listed in absent: the object in question does not exist
	No      bool   // the exit code is listed in no
	Unknown bool   // the exit code is listed in unknown
}

// Run runs a verb on a machine. stdin is the program's input if the verb defines none. Errors: Invalid if the verb is
// missing or not valid; Unavailable if the program ends with an exit code that the verb does not list, or exceeds the
// verb's timeout. Errors of the machine are returned unchanged.
func (p *Point) Run(ctx context.Context, m machine.Machine, verb string, v Values, stdin io.Reader) (Result, error) {
	argv, input, err := p.Command(verb, v)
	if err != nil {
		return Result{}, err
	}
	what := p.verbs[verb]
	if input != "" {
		stdin = strings.NewReader(input)
	}
	limited, cancel := context.WithTimeout(ctx, what.timeout)
	defer cancel()
	text, err := machine.Output(limited, m, stdin, argv...)
	return what.judge(p.Name+" "+verb, text, err, limited, ctx)
}

func (v *Verb) judge(what, text string, err error, limited, ctx context.Context) (Result, error) {
	r := Result{Text: text}
	exit, ended := errors.AsType[*machine.Exit](err)
	if ended {
		r.Code = exit.Code
	} else if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return r, croft.Errorf(croft.Unavailable, "%s: no end after %s: %w", what,
				wording.Duration(v.timeout.Round(time.Second)),
				err)
		}
		return r, fmt.Errorf("%s: %w", what, err)
	}
	r.Absent, r.No, r.Unknown = slices.Contains(v.absent, r.Code), slices.Contains(v.no, r.Code),
		slices.Contains(v.unknown, r.Code)
	if r.Absent || r.No || r.Unknown || slices.Contains(v.ok, r.Code) {
		return r, nil
	}
	if !ended {
		exit = &machine.Exit{}
	}
	return r, croft.Errorf(croft.Unavailable, "%s: %w", what, exit)
}

// Command returns the program of a verb with its arguments, and its input. Errors: Invalid.
func (p *Point) Command(verb string, v Values) (argv []string, stdin string, err error) {
	what := p.verbs[verb]
	if what == nil {
		return nil, "", croft.Errorf(croft.Invalid, "%s: the %s %s has no verb %s", p.From, p.Kind, p.Name, verb)
	}
	s := scope{values: v, point: p}
	if what.script != "" {
		var script string
		if script, err = s.script(what); err == nil {
			argv = []string{"sh", "-c", script}
		}
	} else {
		argv, err = s.arguments(what.argv)
	}
	if err == nil {
		s.secret = true
		stdin, err = s.text(what.stdin)
	}
	switch {
	case err != nil:
		return nil, "", p.at(what, verb, err)
	case len(argv) == 0 || argv[0] == "":
		return nil, "", p.at(what, verb, croft.Errorf(croft.Invalid, "with these values it names no program"))
	}
	for _, word := range argv {
		if strings.ContainsRune(word, 0) {
			return nil, "", p.at(what, verb, croft.Errorf(croft.Invalid, "an argument has a zero byte"))
		}
	}
	return argv, stdin, nil
}

func (p *Point) at(v *Verb, verb string, err error) error {
	if !p.located(err) {
		err = &located{v.at, err}
	}
	return fmt.Errorf("%s %s: %w", p.Name, verb, err)
}

// script expands a shell script. Each referenced value becomes a variable that is set before the script, so that no
// value is interpreted as code. A list becomes a function that runs the list as a command with further arguments.
func (s scope) script(v *Verb) (string, error) {
	names := map[string]string{} // assignments that precede the script
	var body strings.Builder
	for _, text := range []string{s.point.functions, v.script} {
		t, err := parseTemplate(text)
		if err != nil {
			return "", err
		}
		for _, p := range t {
			if p.name == "" {
				body.WriteString(p.text)
				continue
			}
			word, set, err := s.shellWord(p)
			if err != nil {
				return "", err
			}
			names[set] = set
			body.WriteString(word)
		}
		body.WriteString("\n")
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), "\n") + "\n" + body.String(), nil
}

// shellWord returns the text that replaces a reference in a script, and the line before the script that defines it.
func (s scope) shellWord(p part) (word, set string, err error) {
	id := strings.NewReplacer(".", "_", "-", "_", ":", "_").Replace(p.name)
	if _, list, many, known, err := s.look(p.name); err != nil || many {
		if err != nil {
			return "", "", err
		}
		if !known {
			return "", "", unknown(p.name)
		}
		return id, id + "() { " + Quote(list...) + ` "$@"; }`, nil
	}
	text, err := s.text(template{p})
	if p.isOr {
		id += "_or"
	}
	return "${" + id + "}", id + "=" + Quote(text), err
}
