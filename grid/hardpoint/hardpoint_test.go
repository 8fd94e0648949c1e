package hardpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"croft"
	"croft/grid/machine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var verbs = []string{"start", "stop", "list"}

func library(repository, shipped string) Library {
	l := Library{Kind: "runtime", Verbs: verbs, Shipped: fstest.MapFS{"base.yaml": {Data: []byte(shipped)}}}
	if repository != "" {
		l.Repository = fstest.MapFS{"hardpoints/runtime/mine.yaml": {Data: []byte(repository)}}
	}
	return l
}

func load(t *testing.T, text string) *Point {
	t.Helper()
	p, err := library(text, "start: {argv: [base]}").Load("mine")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var values = Values{
	"name": "web", "empty": "", "words": []string{"a b", "", "c"}, "none": []string{}, "secret": Secret("s3cret"),
	"number": 7,
	"ports":  []Values{{"from": 80, "to": 8080}, {"from": 1, "to": 2}}, "yes": true, "no": false,
	"awkward": "it's $(id) `id` \"x\" \\ $HOME\n; exit 9 #",
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		name, argv string
		want       []string
	}{
		{"texts and values", `[run, "--name=${name}", "${number}"]`, []string{"run", "--name=web", "7"}},
		{"an empty value is an empty argument", `[run, "${empty}"]`, []string{"run", ""}},
		{"a default counts for empty values", `[run, "${empty:-x${name}}", "${name:-y}", "${option.x:-z}"]`,
			[]string{"run", "xweb", "web", "z"}},
		{"a list by itself becomes its members", `[run, "${words}", "${none}", x]`, []string{"run", "a b", "", "c",
			"x"}},
		{"a variable may be a list with values", `[run, "${var.flags}"]`, []string{"run", "-n", "web", "-v"}},
		{"a variable may be a text", `[run, "${var.text}"]`, []string{"run", "<web>"}},
		{"for each of a list", `[run, {each: ports, argv: [-p, "${item.from}:${item.to}"]}]`, []string{"run", "-p",
			"80:8080", "-p", "1:2"}},
		{"for each of plain texts", `[run, {each: words, argv: ["-w${item}"]}]`, []string{"run", "-wa b", "-w", "-wc"}},
		{"for each of a variable", `[run, {each: var.flags, argv: [+, "${item}"]}]`, []string{"run", "+", "-n", "+",
			"web", "+", "-v"}},
		{"if", `[run, {if: name, argv: [a]}, {if: empty, argv: [b]}, {if: yes, argv: [c]}, {if: no, argv: [d]}]`,
			[]string{"run", "a", "c"}},
		{"if equal", `[run, {if: name=web, argv: [a]}, {if: name=db, argv: [b]}, {unless: name=db, argv: [c]}]`,
			[]string{"run", "a", "c"}},
		{"if a list has members", `[run, {if: ports, argv: [a]}, {unless: none, argv: [b]}, {if: words, argv: [c]}]`,
			[]string{"run", "a", "b", "c"}},
		{"whether there is a secret may be asked", `[run, {if: secret, argv: [a]}]`, []string{"run", "a"}},
		{"a dollar sign is doubled, or stands before something else", `[run, "$$x $y $", "$${name}"]`, []string{"run",
			"$x $y $", "${name}"}},
		{"nothing is split or read by a shell", `[run, "${awkward}"]`, []string{"run", values["awkward"].(string)}},
		{"a list as text", `[run, "${sh:words}", "${lines:words}"]`, []string{"run", "'a b' '' c", "a b\n\nc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := load(t, "variables:\n  flags: [-n, \"${name}\", -v]\n  text: <${name}>\nstart: {argv: "+c.argv+"}\n")
			got, _, err := p.Command("start", values)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestMistakesAreToldWithTheirLine(t *testing.T) {
	for _, c := range []struct{ name, text, says string }{
		{"an unknown key", "starts: {argv: [x]}", "mine.yaml:1: there is no key starts here, only about, cannot, extends, functions, list, start, stop, variables; did you mean \"start\"?"},
		{"an unknown key of a verb", "start:\n  argv: [x]\n  shel: true", "mine.yaml:3: there is no key shel"},
		{"no program", "start: {ok: [0]}", "mine.yaml:1: the verb has no argv"},
		{"an empty list", "start: {argv: []}", "argv is empty"},
		{"a text where a list belongs", "start: {argv: podman start}", "a list of arguments is wanted"},
		{"a code of two meanings", "start: {argv: [x], ok: [0, 1], absent: 1}", "exit code 1 has two meanings"},
		{"no exit code", "start: {argv: [x], ok: [256]}", "\"256\" is no exit code"},
		{"no timeout", "start: {argv: [x], timeout: never}", "\"never\" is no timeout"},
		{"a timeout of nothing", "start: {argv: [x], timeout: 0s}", "no timeout"},
		{"no form of output", "start: {argv: [x], output: xml}", "\"xml\" is no form"},
		{"a value without an end", "start: {argv: [x, \"${name\"]}", "a } is wanted"},
		{"a value without a name", "start: {argv: [x, \"${}\"]}", "a value's name is"},
		{"a default written as a shell does", "start: {argv: [x, \"${name-y}\"]}", "there is no such value"},
		{"an unknown value", "start:\n  argv: [x,\n    \"${nam}\"]", "mine.yaml:3: ${nam}: there is no such value"},
		{"an unknown value in a script", "start: {shell: true, argv: \"echo ${HOME}\"}",
			"write $${HOME} for a ${ of the shell's own"},
		{"a list in a text", "start: {argv: [x, \"-${words}\"]}", "is a list: make it an argument of its own"},
		{"a list of things", "start: {argv: [x, \"${ports}\"]}", "use each"},
		{"each of no list", "start: {argv: [x, {each: name, argv: [y]}]}", "is no list"},
		{"two conditions", "start: {argv: [x, {if: a, unless: b, argv: [y]}]}", "write {each: LIST"},
		{"a secret as an argument", "start: {argv: [x, \"${secret}\"]}",
			"${secret} is secret, and may be used only in stdin"},
		{"a secret in a script", "start: {shell: true, argv: \"echo ${secret}\"}", "never in arguments"},
		{"a variable that refers to itself",
			"variables: {a: \"${var.b}\", b: \"${var.a}\"}\nstart: {argv: [x, \"${var.a}\"]}", "refers to itself"},
		{"the same key twice", "start: {argv: [x]}\nstart: {argv: [y]}", "start is there twice"},
		{"an alias", "start: &a {argv: [x]}\nstop: *a", "anchors"},
		{"two documents", "start: {argv: [x]}\n---\nstart: {argv: [y]}", "more than one document"},
		{"a tab", "start:\n\targv: [x]", "indent with spaces"},
		{"nothing", "", "it is empty"},
		{"no verbs", "about: x", "it has no verbs"},
		{"it extends itself", "extends: other\nstart: {argv: [x]}", "extends itself"},
		{"no such hard point", "extends: bass\nstart: {argv: [x]}", "did you mean \"base\"?"},
		{"no program with these values", "start: {argv: [\"${empty}\"]}", "names no program"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := library(c.text, "start: {argv: [base]}")
			if c.text == "" {
				l.Repository = fstest.MapFS{"hardpoints/runtime/mine.yaml": {}}
			}
			if r, ok := l.Repository.(fstest.MapFS); ok {
				r["hardpoints/runtime/other.yaml"] = &fstest.MapFile{Data: []byte("extends: mine\n")}
			}
			p, err := l.Load("mine")
			if err == nil {
				_, _, err = p.Command("start", values)
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || croft.KindOf(err) != croft.Invalid &&
				croft.KindOf(err) != croft.NotFound {
				t.Errorf("%v (%s); want %q", err, croft.KindOf(err), c.says)
			}
		})
	}
}

func TestTheRepositoryChangesWhatIsShipped(t *testing.T) {
	l := library("", "about: shipped\nvariables: {program: [base], flags: [-a]}\ncannot: {vm: no, x: y}\n"+
		"functions: |\n  f() { echo base; }\nstart: {argv: [\"${var.program}\", \"${var.flags}\"]}\nstop: {argv: [stop]}\nlist: {shell: true, argv: f}")
	l.Repository = fstest.MapFS{"hardpoints/runtime/base.yaml": {Data: []byte(
		"extends: base\nvariables: {flags: [-b]}\ncannot: {vm: \"\"}\nfunctions: |\n  f() { echo mine; }\nstop: ~\n")}}
	p, err := l.Load("base")
	if err != nil {
		t.Fatal(err)
	}
	argv, _, err := p.Command("start", nil)
	if err != nil || !slices.Equal(argv, []string{"base", "-b"}) {
		t.Errorf("start: %q, %v", argv, err)
	}
	if p.Has("stop") || p.About != "shipped" || len(p.Cannot) != 1 || p.Timeout("start") != defaultTimeout ||
		p.Timeout("stop") != 0 {
		t.Errorf("%+v", p)
	}
	if r, err := p.Run(t.Context(), machine.Local{}, "list", nil, nil); r.Text != "mine\n" || err != nil {
		t.Errorf("list: %+v, %v", r, err)
	}
	if names, err := l.Names(); err != nil || !slices.Equal(names, []string{"base"}) {
		t.Errorf("names: %q, %v", names, err)
	}
	for _, name := range []string{"../base", "", "A", "-x"} {
		if _, err := l.Load(name); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRun(t *testing.T) {
	p := load(t, `
start: {argv: [sh, -c, 'cat; exit "$0"', "${code:-0}"], stdin: "<${secret}>", ok: [0, 5], absent: 3, no: 1, unknown: 128}
stop: {argv: [sleep, "1000"], timeout: 1s}
list: {argv: [/no/such/program]}
`)
	for code, want := range map[string]Result{
		"0": {Text: "<s3cret>"}, "5": {Code: 5, Text: "<s3cret>"}, "3": {Code: 3, Text: "<s3cret>", Absent: true},
		"1": {Code: 1, Text: "<s3cret>", No: true}, "128": {Code: 128, Text: "<s3cret>", Unknown: true},
	} {
		v := Values{"secret": Secret("s3cret"), "code": code}
		if got, err := p.Run(t.Context(), machine.Local{}, "start", v, nil); got != want || err != nil {
			t.Errorf("code %s: %+v, %v", code, got, err)
		}
	}
	_, err := p.Run(t.Context(), machine.Local{}, "start", Values{"secret": Secret("s3cret"), "code": "7"}, nil)
	exit, ok := errors.AsType[*machine.Exit](err)
	if croft.KindOf(err) != croft.Unavailable || !ok || exit.Code != 7 || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a code that is not listed: %v", err)
	}
	if _, err := p.Run(t.Context(), machine.Local{}, "stop", nil, nil); croft.KindOf(err) != croft.Unavailable ||
		!strings.Contains(err.Error(), "no end after 1s") {
		t.Errorf("too slow: %v", err)
	}
	if _, err := p.Run(t.Context(), machine.Local{}, "list", nil, nil); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("no such program: %v", err)
	}
	if _, err := p.Run(t.Context(), machine.Local{}, "probe", nil, nil); croft.KindOf(err) != croft.Invalid {
		t.Errorf("no such verb: %v", err)
	}
}

// TestNoValueBecomesAPartOfAScript puts values in every position of a script where a shell could interpret them as
// code.
func TestNoValueBecomesAPartOfAScript(t *testing.T) {
	const script = `start:
  shell: true
  argv: |
    printf '%s|' "${value}" ${value:-x}'' # ${value}
    # ${value}
    printf '%s|' "$(printf %s "${value}")" "${value}"
    cat << EOF
    ${value}
    EOF
    ${list} more
    eval 'printf "<%s>"' "${sh:list}"
`
	p := load(t, script)
	for _, value := range awkward {
		v := Values{"value": value, "list": []string{"printf", "[%s]", value}}
		got, err := p.Run(t.Context(), machine.Local{}, "start", v, nil)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if trimmed := strings.TrimRight(value, "\n"); !strings.HasPrefix(got.Text, value+"|") ||
			!strings.Contains(got.Text, "["+value+"][more]") ||
			!strings.Contains(got.Text, trimmed+"|"+value+"|") || !strings.HasSuffix(got.Text,
			"<printf><[%s]><"+value+">") {
			t.Errorf("%q: a shell made %q of it", value, got.Text)
		}
	}
}

var awkward = []string{"plain", "it's", "$(exit 9)", "`exit 9`", `"; exit 9; "`, "'; exit 9; '", "a\nexit 9\n", `\`,
	`$HOME ${HOME} $$`,
	"EOF\nexit 9", "#", "-n", "é", "a b  c", "*", "%s%n"}

func FuzzQuote(f *testing.F) {
	for _, s := range awkward {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if Plain(value) != nil || len(value) > 100_000 {
			return
		}
		script := "home=/somewhere\nprintf '%s|' " + Quote(value, Deferred("home")+"/"+value, "") + "\n"
		out, err := machine.Output(t.Context(), machine.Local{}, strings.NewReader(script), "sh", "-s")
		if want := value + "|/somewhere/" + value + "||"; out != want || err != nil {
			t.Errorf("%q, %v; want %q", out, err, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("start: {argv: [a, \"${name:-x${y}}\", {each: ports, argv: [\"${item.from}\"]}], stdin: \"${secret}\"}")
	f.Add("start: {shell: true, argv: \"echo ${name} $${x} $$\"}\nvariables: {a: [b]}")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := library(text+" ", "start: {argv: [base]}").Load("mine")
		if err != nil {
			if k := croft.KindOf(err); k != croft.Invalid && k != croft.NotFound {
				t.Errorf("%v is of kind %q", err, k)
			}
			return
		}
		for _, verb := range p.Verbs() {
			argv, _, err := p.Command(verb, values)
			if err == nil && strings.Contains(strings.Join(argv, " "), "s3cret") {
				t.Errorf("the secret is an argument: %q", argv)
			}
			if body, err := p.Shell(verb, values); err == nil && strings.Contains(body, "s3cret") &&
				!strings.Contains(body, "printf %s") {
				t.Errorf("the secret is in the script: %q", body)
			}
		}
	})
}

func TestShell(t *testing.T) {
	p := load(t, `
start: {argv: [sh, -c, 'cat; exit "$0"', "${code}"], stdin: "<${secret}>", ok: [0, 5], absent: 3, no: 4}
stop: {shell: true, argv: 'echo "${name}"; exit 3', absent: 3}
list: {argv: ["true"], ok: 1}
`)
	for code, want := range map[string]int{"0": 0, "5": 0, "3": CodeAbsent, "4": CodeNo, "7": 7} {
		body, err := p.Shell("start", Values{"secret": Secret("s3\x00cret\\"), "code": code})
		if err != nil {
			t.Fatal(err)
		}
		out, err := machine.Output(t.Context(), machine.Local{}, strings.NewReader("verb() {\n"+body+"}\nverb\n"),
			"sh", "-s")
		got := 0
		if exit, ok := errors.AsType[*machine.Exit](err); ok {
			got = exit.Code
		}
		if got != want || out != "<s3\x00cret\\>" {
			t.Errorf("code %s: %d, %q", code, got, out)
		}
	}
	for verb, want := range map[string]string{"stop": "exit code 111", "list": "exit code 1"} {
		body, err := p.Shell(verb, values)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := machine.Output(t.Context(), machine.Local{}, strings.NewReader("verb() {\n"+body+"}\nverb\n"),
			"sh", "-s"); err == nil || err.Error() != want {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

func TestTheDigestCoversWhatTheRepositoryDefines(t *testing.T) {
	digest := func(text string) string { return load(t, text).Digest("about", "list") }
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"a variable", "extends: base\nvariables: {x: a}", "extends: base\nvariables: {x: b}", false},
		{"functions", "extends: base\nfunctions: a", "extends: base\nfunctions: b", false},
		{"a verb", "extends: base\nstop: {argv: [a]}", "extends: base\nstop: {argv: [b]}", false},
		{"a verb that is taken away", "extends: base\nstart:\nstop: {argv: [a]}", "extends: base\nstop: {argv: [a]}",
			false},
		{"an exit code", "extends: base\nstop: {argv: [a]}", "extends: base\nstop: {argv: [a], ok: 3}", false},
		{"a key that is left out", "extends: base\nlist: {argv: [a]}", "extends: base\nlist: {argv: [b]}", true},
		{"layout, order and comments", "extends: base\nvariables: {x: [a, 1], y: b} # words",
			"variables:\n  y: 'b'\n  x:\n  - a\n  - 1\nextends: base", true},
	} {
		if a, b := digest(c.a), digest(c.b); (a == b) != c.same || a == "" {
			t.Errorf("%s: %q and %q", c.name, a, b)
		}
	}
	shipped := library("extends: base", "start: {argv: [a]}")
	one, err := shipped.Load("base")
	if err != nil {
		t.Fatal(err)
	}
	if d := one.Digest(); d != "" {
		t.Errorf("what croft ships has the digest %q, and an upgrade must change none", d)
	}
	shipped.Repository = fstest.MapFS{"hardpoints/runtime/base.yaml": {Data: []byte("extends: base\nabout: words")}}
	if one, err = shipped.Load("base"); err != nil {
		t.Fatal(err)
	}
	if d := one.Digest("about"); d != "" {
		t.Errorf("a file that changes nothing that counts has the digest %q", d)
	}
}
