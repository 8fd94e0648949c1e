// Package args has the code that commands of the cloud share: the settings behind flags, the client of the chosen
// cloud, and completions of names in the cloud.
package args

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/client"
	"croft/control/api"
	"croft/control/cloud/direct"
	"croft/internal/nearest"
	"croft/internal/span"
	"croft/internal/traces"
	"croft/schedule"
	"croft/tenant"
)

// AnswerTimeout limits requests that the cloud normally answers at once. It is long enough for etcd to elect a new
// leader.
const AnswerTimeout = 30 * time.Second

// Client is the connection of one command to its cloud.
type Client struct {
	*client.Client
	Settings direct.Settings
	Project  croft.Project // empty: all projects
	Cmd      *cobra.Command
	Args     []string // the arguments of Cmd, in commands that verb.Run runs

	unknown error // error for a Project that does not exist; nil: it exists, or was not checked
}

// User returns the caller's user name in the cloud.
func (c *Client) User(ctx context.Context) (string, error) {
	caller, err := c.Caller(ctx)
	return caller.User, err
}

// Dial connects to the cloud that the settings name: over its API if they have its URL. The caller must close the
// client.
func Dial(ctx context.Context, s direct.Settings) (*Client, error) {
	if s.Settings.Set() {
		return dialAPI(ctx, s)
	}
	c, err := direct.Dial(ctx, s)
	if err != nil {
		return nil, err
	}
	return &Client{Client: c, Settings: s, Project: croft.Project(s.Project)}, nil
}

// dialAPI connects over the API. The default project then means the project of the token.
func dialAPI(ctx context.Context, s direct.Settings) (_ *Client, err error) {
	if s.Renewed != nil {
		if s.Token, err = s.Renewed(ctx); err != nil {
			return nil, err
		}
	}
	api, err := client.New(s.Settings)
	if err != nil {
		return nil, err
	}
	c := &Client{Client: api, Settings: s, Project: croft.Project(s.Project)}
	if c.Project != croft.DefaultProject {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	caller, err := api.Caller(ctx)
	if err != nil {
		return nil, errors.Join(err, api.Close())
	}
	if caller.Project != "" {
		c.Project, c.Settings.Project = caller.Project, string(caller.Project)
	}
	return c, nil
}

// With reads the settings, connects, calls do and closes the connection.
func With(cmd *cobra.Command, do func(context.Context, *Client) error) error {
	s, err := LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	check := tenant.Hinted
	if cmd.Annotations[AnyProject] != "" {
		check = nil
	}
	return connected(cmd.Context(), s, check, func(ctx context.Context, c *Client) error {
		c.Cmd = cmd
		return do(ctx, c)
	})
}

// WithTimeout does the same as With, for a do that must end within AnswerTimeout.
func WithTimeout(cmd *cobra.Command, do func(context.Context, *Client) error) error {
	return With(cmd, func(ctx context.Context, c *Client) error {
		ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
		defer cancel()
		return do(ctx, c)
	})
}

// WithServer is WithTimeout for commands that need a server of the API, through which it reaches the cloud of this
// machine.
func WithServer(cmd *cobra.Command, do func(context.Context, *Client) error) error {
	s, err := RemoteSettings(cmd.Flags())
	if err != nil {
		return err
	}
	if s.Settings.Set() || !s.Unset() || !servedByMachine() {
		return WithTimeout(cmd, do)
	}
	s.URL, s.Found = "unix://"+direct.MachineSocket, true
	return connected(cmd.Context(), s, tenant.Hinted, func(ctx context.Context, c *Client) error {
		ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
		defer cancel()
		c.Cmd = cmd
		return do(ctx, c)
	})
}

// WithSettings calls do with a connection, for settings that were already read and a command that may use a project
// that does not exist. It refuses short names of projects.
func WithSettings(ctx context.Context, s direct.Settings, do func(context.Context, *Client) error) error {
	return connected(ctx, s, tenant.Short, do)
}

// connected calls do with a connection, and closes it. It returns the error for an unknown project if refused is true
// for it.
func connected(ctx context.Context, s direct.Settings, refused func(error) bool,
	do func(context.Context, *Client) error) error {
	c, err := Dial(ctx, s)
	if err != nil {
		return err
	}
	if refused != nil {
		err = c.checkProject(ctx, refused)
	}
	if err == nil {
		err = do(ctx, c)
	}
	if closed := c.Close(); err == nil {
		err = closed
	}
	return err
}

// Named names an instance by its ID, or its name in the client's project.
func (c *Client) Named(idOrName string) api.InstanceNamed {
	return api.InstanceNamed{ID: idOrName, Project: c.Project}
}

// Instance reads an instance of the project.
func (c *Client) Instance(ctx context.Context, idOrName string) (api.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	found, err := c.GetInstance(ctx, api.InstanceShown{InstanceNamed: c.Named(idOrName)})
	return found, c.Nearest(ctx, idOrName, err)
}

// OwnInstances lists the instances of the client's project, oldest first.
func (c *Client) OwnInstances(ctx context.Context) ([]api.Instance, error) {
	return c.AllInstances(ctx, api.InstanceFilter{InProject: api.InProject{Project: c.Project}})
}

// Nearest adds the name of a similar instance, which the command does not name as well and which stays, to a NotFound
// error.
func (c *Client) Nearest(ctx context.Context, idOrName string, err error) error {
	if !errors.Is(err, croft.NotFound) {
		return err
	}
	if _, isID := croft.ParseInstanceID(idOrName); isID == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTimeout)
	defer cancel()
	all, listed := c.OwnInstances(ctx)
	if listed != nil {
		return err // the hint is optional
	}
	var known []string
	offer := c.Unnamed(idOrName, func(name, _ string) { known = append(known, name) })
	for _, i := range all {
		if i.State != string(croft.StateDestroying) {
			offer(i.Name, i.State)
		}
	}
	return suggest(idOrName, known, err)
}

// HostCalled returns the host with this UUID or, if it is missing, with this name. NotFound: the error suggests a
// similar name. Conflict: several hosts have the name.
func HostCalled(all []croft.Host, idOrName string) (croft.Host, error) {
	h, err := croft.HostCalled(slices.Values(all), idOrName)
	if errors.Is(err, croft.NotFound) {
		var names []string
		for _, h := range all {
			names = append(names, h.Name)
		}
		slices.Sort(names)
		err = croft.Errorf(croft.NotFound, "%w%s", err, nearest.Hint(idOrName, names))
	}
	return h, err
}

// StoredKeys returns the lines of the project's stored keys with these names. NotFound.
func (c *Client) StoredKeys(ctx context.Context, names []string) ([]string, error) {
	return schedule.FindKeys(ctx, func(ctx context.Context, project croft.Project) ([]schedule.Key, error) {
		list, err := c.ListKeys(ctx, api.InProject{Project: project})
		return list.Keys, err
	}, c.Project, names)
}

// Traced calls do within a span if the settings configure tracing. The span belongs to the trace in TRACEPARENT, which
// CI jobs set; otherwise it starts a new trace.
func (c *Client) Traced(ctx context.Context, name string, do func(context.Context) error) error {
	provider, flush, err := c.Settings.Traces.Start(ctx, "croft-schedule", traces.CommandFlush,
		slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer flush()
	ctx, _ = span.Join(ctx, os.Getenv("TRACEPARENT"))
	ctx, end := span.Begin(ctx, provider, name)
	err = do(ctx)
	end(err)
	return err
}
