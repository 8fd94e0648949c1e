package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/grid/hardpoint"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

// Exit codes of the scripts. A verb may exit with 78 to report that this runtime or machine cannot run the unit.
const (
	exitFailed   = 70
	exitConflict = 71
	exitNotFound = 72
	exitLacking  = 75 // a program is not installed
	exitInvalid  = 78
)

// The scripts of the methods. verb_NAME is a verb of the hard point. $home is the state directory, $units the directory
// of all units, and $dir the directory of this unit. $name, $cluster and $hash are the unit's. try reports a verb that
// failed, and ends the script.
const (
	needsProgram = "needs\n"

	// look sets $found to the status of the unit, and f_hash and the like to its fields. $found is empty if the unit
	// does not exist. An object of the same name that is not of the cluster ends the script with a conflict.
	look = `
found=$(verb_status); code=$?
case $code in
0) ;;
111) found= ;;
78) exit 78 ;;
*) fail status "$code" ;;
esac
IFS='|' read -r f_name f_hash f_job f_slot f_cluster f_state f_images << EOF
$found
EOF
if [ -n "$found" ] && [ "$f_cluster" != "$cluster" ]; then
	echo "the name $name is taken there by something that is not of this cluster: remove or rename that" >&2
	exit 71
fi
`
	prepareScript = `verb_prepare; code=$?; case $code in 0|111) return "$code" ;; *) try prepare "$code" ;; esac`
	createScript  = look + `
if [ -n "$found" ]; then
	[ "$f_hash" = "$hash" ] && return 0
	echo "$name is there with another hash: remove it first" >&2
	exit 71
fi
write_files
note_address
printf '%s\n' "$definition" > "$dir/definition" || fail create 1
verb_create; try create $?`
	startScript = look + `
[ -n "$found" ] || { echo "$name was not created there" >&2; exit 72; }
address_up
[ "$f_state" = running ] && return 0
verb_start; try start $?`
	stopScript = look + `
[ -n "$found" ] || return 0
verb_stop; code=$?; [ "$code" = 111 ] || try stop "$code"
address_down`
	removeScript = look + `
if [ "$f_state" = running ]; then
	echo "$name runs: stop it first" >&2
	exit 71
fi
if [ -n "$found" ]; then verb_remove; code=$?; [ "$code" = 111 ] || try remove "$code"; fi
rm -rf "$dir"`
	// listScript prefixes each unit with the definition that was recorded when the unit was made.
	listScript = `( needs ) 2> /dev/null || return 0
listed=$(verb_list); try list $?
printf '%s\n' "$listed" | while IFS= read -r line; do
	noted= one=${line%%|*}
	case $one in
	''|*/*|.*) ;;
	*) { read -r noted < "$units/$one/definition"; } 2> /dev/null ;;
	esac
	printf '%s|%s\n' "$noted" "$line"
done`
	statusScript = look + `
[ -n "$found" ] || { echo "there is no $name there" >&2; exit 72; }
printf '|%s\n' "$found"`
	// keepScript copies the Kept files and variables, from which write_files of a later script restores the unit.
	keepScript = look + `
if [ "$f_hash" != "$hash" ]; then
	echo "$name is not there as it was applied, so that nobody knows the secrets it had" >&2
	exit 71
fi
keep_files`
	readyScript = look + `
[ -n "$found" ] || { echo "it is gone"; return 111; }
[ "$f_state" = running ] || { echo "it does not run, but is $f_state"; return 111; }
`
)

// prelude is the start of every script.
const prelude = `umask 077
if [ -n "$home" ]; then :
elif [ "$(id -u)" = 0 ]; then home=/var/lib/croft/grid
else home=${XDG_STATE_HOME:-$HOME/.local/state}/croft/grid
fi
case "$home" in
/*[!A-Za-z0-9/._-]*|[!/]*) echo "the state directory $home: an absolute path of letters, digits and /._- is wanted" >&2; exit 78 ;;
esac
units=$home/units dir=$home/units/$name
fail() { echo "$runtime $1: exit code $2" >&2; exit 70; }
try() { case $2 in 0) ;; 78) exit 78 ;; *) fail "$1" "$2" ;; esac; }
# note_address notes which address an interface gets while the unit runs: ADDRESS/BITS, and the interface if it is given.
note_address() {
	rm -f "$dir/address" "$dir/address.set"
	[ -z "$own_address" ] || printf '%s %s\n' "$own_address" "$own_interface" > "$dir/address" || fail create 1
}
# has_address ADDRESS/BITS: an interface has it
has_address() {
	family=-4
	case $1 in *:*) family=-6 ;; esac
	[ -n "$(ip $family -o address show to "${1%/*}" 2> /dev/null)" ]
}
# An address that is there already is somebody else's: it is neither added nor removed.
address_up() {
	[ -e "$dir/address" ] || return 0
	read -r own through < "$dir/address"
	command -v ip > /dev/null || { echo "ip is not installed there: the unit's address takes iproute2" >&2; exit 75; }
	! has_address "$own" || return 0
	[ -n "$through" ] || through=$(ip -o route get "${own%/*}" 2> /dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')
	case $through in
	''|lo) echo "no interface leads to ${own%/*}: write interface: NAME into the job or the node's file" >&2; exit 78 ;;
	esac
	nodad=
	[ "$family" = -4 ] || nodad=nodad
	ip address add "$own" dev "$through" $nodad || fail start $?
	printf '%s %s\n' "$own" "$through" > "$dir/address.set" || fail start 1
}
address_down() {
	[ -e "$dir/address.set" ] || return 0
	read -r own through < "$dir/address.set"
	! has_address "$own" || ip address del "$own" dev "$through" || fail stop $?
	rm -f "$dir/address.set"
}
`

var verbForm = lazyregexp.New(`verb_([a-z]+)`)

// verbsOf lists the verbs that a script calls.
func verbsOf(script string) []string {
	var list []string
	for _, found := range verbForm.Get().FindAllStringSubmatch(script, -1) {
		if !slices.Contains(list, found[1]) {
			list = append(list, found[1])
		}
	}
	return list
}

// script returns the whole script of a method: a function, and a call of it at the end with empty input.
func (r *Runtime) script(verbs []string, u unit.Unit, body string, more ...hardpoint.Values) (string, error) {
	v, err := r.values(u)
	if err != nil {
		return "", err
	}
	for _, some := range more {
		maps.Copy(v, some)
	}
	var b strings.Builder
	b.WriteString("croft_grid() {\n")
	for _, set := range [][2]string{{"home", r.config.StateDir}, {"name", v["name"].(string)}, {"cluster", u.Cluster},
		{"hash", v["hash"].(string)}, {"runtime", r.Name()}, {"definition", r.definition},
		{"own_address", v["address.node"].(string)}, {"own_interface", u.Interface}} {
		b.WriteString(set[0] + "=" + machine.Quote(set[1]) + "\n")
	}
	b.WriteString(prelude)
	programs, err := r.point.List("needs", v)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "needs() {\nfor program in %s; do\ncommand -v \"$program\" > /dev/null 2>&1 || "+
		"{ echo \"$program is not installed there\" >&2; exit %d; }\ndone\n}\n", machine.Quote(programs...),
		exitLacking)
	for _, verb := range verbs {
		text, err := r.point.Shell(verb, v)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "verb_%s() {\n%s}\n", verb, text)
	}
	if strings.Contains(body, "write_files") {
		b.WriteString(writeFiles(u))
	}
	if strings.Contains(body, "keep_files") {
		b.WriteString(keepFiles(u))
	}
	b.WriteString("main_part() {\n" + body + "\n}\nmain_part\n}\ncroft_grid < /dev/null\n")
	return b.String(), nil
}

// writeFiles returns a shell function that writes the files of a unit. It replaces each file atomically.
func writeFiles(u unit.Unit) string {
	var b strings.Builder
	b.WriteString("write_files() {\nmkdir -p \"$dir/files\" || fail create 1\n")
	for i, f := range u.Files {
		content := hardpoint.Print(f.Content)
		if f.Kept {
			content = fmt.Sprintf(`cat "$kept/%d"`, i)
		}
		fmt.Fprintf(&b, "file=$dir/files/%d\n{ %s > \"$file.new\" && %s && mv -f \"$file.new\" \"$file\"; } || "+
			"fail create 1\n", i, content, permit(u, f))
	}
	b.WriteString(writeEnvironment(u))
	return b.String() + "}\n"
}

// environmentFiles lists the files in $dir that contain the variables with secrets, one for each reader.
var environmentFiles = []string{"env.sh", "env.list", "env.systemd", "env.json"}

// writeEnvironment returns shell commands that write the variables with secrets in the formats of their readers: a
// POSIX shell, podman and docker, systemd, and config.json of a bundle.
func writeEnvironment(u unit.Unit) string {
	var b strings.Builder
	b.WriteString("(cd \"$dir\" && rm -f " + machine.Quote(environmentFiles...) + ") || fail create 1\n")
	contents := environmentContents(u)
	for _, name := range environmentFiles {
		content := hardpoint.Print(contents[name])
		switch {
		case len(u.SecretEnv) == 0:
			continue
		case u.KeptEnv():
			content = `cat "$kept/` + name + `"`
		}
		fmt.Fprintf(&b, "%s > \"$dir/%s\" || fail create 1\n", content, name)
	}
	return b.String()
}

func environmentContents(u unit.Unit) map[string]string {
	contents := map[string]string{}
	for _, v := range u.SecretEnv {
		contents["env.sh"] += "export " + v.Name + "=" + machine.Quote(v.Content) + "\n"
		contents["env.list"] += v.Name + "=" + v.Content + "\n"
		contents["env.systemd"] += v.Name + `="` + systemdValue.Replace(v.Content) + "\"\n"
		text, err := json.Marshal(v.Name + "=" + v.Content)
		if err != nil {
			panic(err) // a string always encodes
		}
		contents["env.json"] += "," + string(text)
	}
	return contents
}

// systemdValue quotes a value in an EnvironmentFile of systemd, which keeps all other characters unchanged.
var systemdValue = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`")

var numbers = lazyregexp.New(`^[0-9]+(:[0-9]+)?$`)

// permit returns a shell command that sets the mode of the file $file.new. A secret without a mode is readable only by
// the unit's user, unless the user's number is unknown here, because the image defines the user or resolves its name.
// In that case, and if the owner of the file cannot be changed, only the mode of its directory protects the file from
// other users of the node.
func permit(u unit.Unit, f unit.File) string {
	mode := fmt.Sprintf("chmod %04o \"$file.new\"", f.Mode&0o7777)
	switch {
	case !f.Secret || !f.ModeUnset || u.User == "" && u.Image.Registry != "":
		return mode
	case u.User == "":
		return `chmod 0600 "$file.new"`
	case numbers.MatchString(u.User) || u.Image == unit.Image{}:
		return fmt.Sprintf("chmod 0600 \"$file.new\" && { chown %s \"$file.new\" 2> /dev/null || %s; }",
			machine.Quote(u.User), mode)
	}
	return mode
}

// keepFiles returns a shell function that copies the files and variables of a unit that only the node has. Only their
// owner can read the copies.
func keepFiles(u unit.Unit) string {
	var b strings.Builder
	b.WriteString("keep_files() {\n")
	for i, f := range u.Files {
		if f.Kept {
			fmt.Fprintf(&b, "[ -f \"$dir/files/%d\" ] || { echo %s >&2; exit 71; }\n"+
				"cat \"$dir/files/%d\" > \"$kept/%d\" || fail keep 1\n", i,
				machine.Quote("the secret "+f.Path+" of "+u.Name()+" is not there any more"), i, i)
		}
	}
	if u.KeptEnv() {
		for _, name := range environmentFiles {
			fmt.Fprintf(&b, "[ -f \"$dir/%s\" ] || { echo %s >&2; exit 71; }\n"+
				"cat \"$dir/%s\" > \"$kept/%s\" || fail keep 1\n", name,
				machine.Quote("the variables with secrets of "+u.Name()+" are not there any more"), name, name)
		}
	}
	return b.String() + "}\n"
}

// answer is an exit code that is a script's answer and not a failure.
type answer struct {
	code int
	text string
}

func (a *answer) Error() string { return "exit code " + strconv.Itoa(a.code) }

func isAbsent(err error) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && a.code == hardpoint.CodeAbsent
}

func isNo(err error) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && a.code == hardpoint.CodeNo
}

// run runs the script of a method, and returns its output.
func (r *Runtime) run(ctx context.Context, m machine.Machine, what string, u unit.Unit, body string) (string, error) {
	return r.runWith(ctx, m, what, u, body, nil)
}

// runWith is run with additional values.
func (r *Runtime) runWith(ctx context.Context, m machine.Machine, what string, u unit.Unit, body string,
	more hardpoint.Values) (string, error) {
	label := r.Name() + " " + what
	if u.Job != "" {
		label += " " + u.Name()
	}
	verbs := verbsOf(body)
	text, err := r.script(verbs, u, body, more)
	if err != nil {
		return "", fmt.Errorf("%s: %w", label, err)
	}
	var timeout time.Duration
	for _, verb := range verbs {
		timeout += r.point.Timeout(verb)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := machine.Output(limited, m, strings.NewReader(text), "sh", "-s")
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return "", fmt.Errorf("%s: no end after %s: %w", label, wording.Duration(timeout), err)
	}
	return out, judge(label, out, err)
}

// judge converts the exit code of a script to an error of the right kind.
func judge(label, out string, err error) error {
	exit, ended := errors.AsType[*machine.Exit](err)
	if !ended {
		if err != nil {
			err = fmt.Errorf("%s: %w", label, err)
		}
		return err
	}
	said := strings.TrimSpace(exit.Stderr)
	if said == "" {
		said = exit.Error()
	}
	switch exit.Code {
	case hardpoint.CodeAbsent, hardpoint.CodeNo:
		return &answer{exit.Code, out}
	case exitConflict:
		return croft.Errorf(croft.Conflict, "%s: %s", label, said)
	case exitNotFound:
		return croft.Errorf(croft.NotFound, "%s: %s", label, said)
	case exitInvalid:
		return croft.Errorf(croft.Invalid, "%s: %s", label, said)
	}
	return croft.Errorf(croft.Unavailable, "%s: %s", label, said)
}

// parse parses the output of the scripts of list and status: one line per unit, in the form
// DEFINITION|NAME|HASH|JOB|SLOT|CLUSTER|STATE. A runtime may append |IMAGE|NOW: the unit's image, and the image to
// which its reference resolves now.
func (r *Runtime) parse(out, cluster string) ([]plan.Actual, error) {
	var list []plan.Actual
	for line := range strings.Lines(out) {
		definition, line, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "|")
		if line == "" {
			continue
		}
		fields := strings.Split(line, "|")
		if len(fields) != 6 && len(fields) != 8 {
			return nil, croft.Errorf(croft.Invalid, "%s list: %.200q is not NAME|HASH|JOB|SLOT|CLUSTER|STATE",
				r.Name(), line)
		}
		slot, err := strconv.Atoi(fields[3])
		if fields[4] != cluster || err != nil || slot < 0 {
			continue // of another cluster, or not made by croft
		}
		a := plan.Actual{Name: fields[0], Hash: fields[1], Job: fields[2], Slot: slot, Runtime: r.Name(),
			Running: fields[5] == "running", Status: fields[5],
			OldDefinition: definition != "" && definition != r.definition}
		if len(fields) == 8 {
			a.OldImage = fields[6] != "" && fields[7] != "" && fields[6] != fields[7]
		}
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b plan.Actual) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}
