package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"croft"
	"croft/internal/durable"
	"croft/internal/userfile"
	"croft/pool/api"
)

// Executor does the steps of GitLab's custom executor for one job. Each step is a separate process: a file in Dir
// tells the later ones which machine the job has.
type Executor struct {
	Tickets Tickets // required
	Shell   Shell   // required
	Dir     string  // required: of the files

	Tags  []string      // of the machine, for Prepare
	User  string        // who runs the job; empty: as the machine's data or ssh's configuration says
	Lease time.Duration // of the ticket; 10 minutes by default
	Wait  time.Duration // for a machine; 30 minutes by default
	Boot  time.Duration // for its SSH server; 5 minutes by default

	Say func(text string) // gets progress for the job's log; nil: nobody
}

// GitLabJob identifies a job.
type GitLabJob struct{ key string }

// ReadGitLabJob reads the file in which GitLab's runner passes a job on, and identifies the job by its number and its
// secret token: a job may copy the variables of another job, but does not know its token.
// Invalid.
func ReadGitLabJob(file, server, runner string) (GitLabJob, error) {
	if file == "" {
		return GitLabJob{}, croft.Errorf(croft.Invalid, "the variable JOB_RESPONSE_FILE is not set: have GitLab Runner 14.1 or "+
			"newer call this command as its custom executor")
	}
	text, err := userfile.Read(file)
	if err != nil {
		return GitLabJob{}, croft.Errorf(croft.Invalid, "read the job: %w", err)
	}
	var job struct {
		ID    int64  `json:"id"`
		Token string `json:"token"`
	}
	if err := json.Unmarshal(text, &job); err != nil || job.ID == 0 || job.Token == "" {
		return GitLabJob{}, croft.Errorf(croft.Invalid, "%s is no job of GitLab: it has no id or no token", file)
	}
	identity := []string{server, runner, strconv.FormatInt(job.ID, 10), job.Token}
	sum := sha256.Sum256([]byte(strings.Join(identity, "\x00")))
	return GitLabJob{key: "gitlab-" + hex.EncodeToString(sum[:16])}, nil
}

// jobState is the content of a job's file. It is written before the ticket is opened.
type jobState struct {
	Key     string        `json:"key"` // of the ticket
	Tags    []string      `json:"tags"`
	Lease   time.Duration `json:"lease"`
	Machine *Machine      `json:"machine,omitempty"` // nil: it was not ready
}

func (s jobState) opening() api.Opening {
	return api.Opening{Tags: s.Tags, TTL: api.Seconds(s.Lease), Key: s.Key}
}

func (e *Executor) file(j GitLabJob) string { return filepath.Join(e.Dir, j.key+".json") }

func (e *Executor) write(j GitLabJob, s jobState) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return fmt.Errorf("write down the job: %w", err)
	}
	return durable.Write(e.file(j), text, 0o600)
}

// read returns the state of a job. NotFound: the job has no file.
func (e *Executor) read(j GitLabJob) (s jobState, err error) {
	text, err := os.ReadFile(e.file(j))
	if errors.Is(err, os.ErrNotExist) {
		return s, croft.Errorf(croft.NotFound, "the job has no machine: the step prepare has not run for it here")
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.Key != j.key {
		err = errors.New("it is about another job")
	}
	if err != nil {
		return s, fmt.Errorf("read %s: %w", e.file(j), err)
	}
	return s, nil
}

// oldest is the age at which files of jobs that were never cleaned up are removed: GitLab ends jobs after a month.
const oldest = 32 * 24 * time.Hour

// prune removes the files of jobs that were never cleaned up. Their tickets have ended with their leases.
func (e *Executor) prune() {
	files, _ := filepath.Glob(filepath.Join(e.Dir, "gitlab-*.json")) // the pattern is valid
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) > oldest {
			_ = os.Remove(file) // the next job tries again
		}
	}
}

// Prepare gets the job's machine. Calling it again continues with the same ticket. NoCapacity: no pool can serve it.
func (e *Executor) Prepare(ctx context.Context, j GitLabJob) error {
	if len(e.Tags) == 0 {
		return croft.Errorf(croft.Invalid, "name with --tag what the machine must have")
	}
	e.prune()
	s := jobState{Key: j.key, Tags: e.Tags, Lease: cmp.Or(e.Lease, 10*time.Minute)}
	if before, err := e.read(j); err == nil {
		s = before // the settings may have changed between two attempts
	} else if !errors.Is(err, croft.NotFound) {
		return err
	}
	if err := e.write(j, s); err != nil {
		return err
	}
	t, err := e.Tickets.Open(ctx, s.opening())
	if err != nil {
		return fmt.Errorf("open a ticket: %w", err)
	}
	if t.State != api.TicketOpen {
		return t.Err()
	}
	held, release := keep(ctx, e.Tickets, t.ID, s.Lease)
	defer release()
	waiting, cancel := context.WithTimeout(held, cmp.Or(e.Wait, 30*time.Minute))
	defer cancel()
	e.say(fmt.Sprintf("ticket %d for a machine with %s", t.ID, strings.Join(s.Tags, ", ")))
	last := ""
	m, err := serve(waiting, e.Tickets, t.ID, func(why string) { last = why; e.say("waiting: " + why) })
	if err != nil && held.Err() == nil && waiting.Err() != nil {
		return croft.Errorf(croft.Unavailable, "ticket %d got no machine in time: %s", t.ID, last)
	}
	if err == nil {
		m.User = cmp.Or(e.User, m.User)
		err = reach(held, e.Shell, m, cmp.Or(e.Boot, 5*time.Minute))
	}
	if err != nil {
		return because(held, err)
	}
	said := &tail{}
	if err := e.Shell.Run(held, m, "command -v bash", strings.NewReader(""), io.Discard, said); err != nil {
		if _, exit := errors.AsType[*Exit](err); exit {
			return croft.Errorf(croft.Invalid, "the machine has no bash, which GitLab's scripts need: put it into the image")
		}
		return because(held, fmt.Errorf("%w%s", err, said))
	}
	s.Machine = &m
	e.say("the job runs on " + m.Host)
	return e.write(j, s)
}

func (e *Executor) say(text string) {
	if e.Say != nil {
		e.Say(text)
	}
}

// runScript is the command that runs the script in its input with bash. The machine remembers how the script ended,
// since ssh has the exit code 255 for its own errors. The end of the script is marked in both outputs, since a process
// that the script left in the background keeps them open.
func runScript(name, mark string) string {
	return "umask 077; dir=~/.croft-runner; mkdir -p $dir && cat > $dir/" + name + ` || exit 255
bash $dir/` + name + ` < /dev/null
code=$?; echo $code > $dir/` + name + ".exit; rm -f $dir/" + name + `
echo "` + mark + ` $code"; echo "` + mark + ` $code" >&2; exit $code`
}

// errScriptEnded ends the connection of a script that has ended.
var errScriptEnded = errors.New("the script has ended")

// Run runs a script of the job on its machine, and renews the lease meanwhile. It returns when the script has ended,
// also if processes that it started go on. An *Exit error is the script's; all others are failures of the system.
func (e *Executor) Run(ctx context.Context, j GitLabJob, script []byte, stdout, stderr io.Writer) error {
	s, err := e.read(j)
	if err != nil {
		return err
	}
	if s.Machine == nil {
		return croft.Errorf(croft.NotFound, "the job has no machine: the step prepare did not succeed")
	}
	m := *s.Machine
	held, release := keep(ctx, e.Tickets, m.Ticket, s.Lease)
	defer release()
	if _, err := e.Tickets.Renew(held, m.Ticket); errors.Is(err, croft.Conflict) || errors.Is(err, croft.NotFound) {
		return croft.Errorf(croft.Conflict, "the job's machine is gone: %w", err)
	}
	running, end := context.WithCancelCause(held)
	defer end(nil)
	var open atomic.Int32
	open.Store(2)
	over := func() {
		if open.Add(-1) == 0 {
			end(errScriptEnded)
		}
	}
	name, mark := rand.Text(), rand.Text()
	out := &upToMark{to: stdout, mark: []byte(mark), over: over}
	errs := &upToMark{to: stderr, mark: []byte(mark), over: over}
	err = e.Shell.Run(running, m, runScript(name, mark), bytes.NewReader(script), out, errs)
	if err := errors.Join(out.flush(), errs.flush()); err != nil {
		return fmt.Errorf("pass on the output of the script: %w", err)
	}
	if code, ended := errs.code(); ended && open.Load() == 0 {
		return exitOf(code)
	}
	if cause := context.Cause(held); cause != nil {
		return because(held, cause)
	}
	if !errors.Is(err, croft.Unavailable) {
		return err
	}
	var said bytes.Buffer
	asked := e.Shell.Run(held, m, "cat ~/.croft-runner/"+name+".exit", strings.NewReader(""), &said, io.Discard)
	if code, bad := strconv.Atoi(strings.TrimSpace(said.String())); asked == nil && bad == nil && code > 0 {
		return &Exit{code}
	}
	return because(held, err)
}

// exitOf returns the error of an exit code; nil: 0.
func exitOf(code int) error {
	if code == 0 {
		return nil
	}
	return &Exit{code}
}

// Cleanup gives the job's machine back. It is no error if the job has none.
func (e *Executor) Cleanup(ctx context.Context, j GitLabJob) error {
	s, err := e.read(j)
	if errors.Is(err, croft.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var id int64
	if s.Machine != nil {
		id = s.Machine.Ticket
	} else { // whether the ticket was opened is unknown: opening it again tells its number
		t, err := e.Tickets.Open(ctx, s.opening())
		if err != nil {
			return fmt.Errorf("find the job's ticket, which ends with its lease: %w", err)
		}
		id = t.ID
	}
	if err := closeTicket(ctx, e.Tickets, id); err != nil {
		return err
	}
	return os.Remove(e.file(j))
}
