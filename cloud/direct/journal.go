package direct

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/etcdstore/actionlog"
)

// journal writes each action at once, because a command makes few of them. It is also the cloud's connection: closing
// it returns the errors of entries that could not be written.
type journal struct {
	log           *actionlog.Log
	user, machine string
	under         io.Closer

	mu     sync.Mutex
	failed error
}

// writing limits the time to write an entry.
const writing = 5 * time.Second

// tell records an action that started at began and ended with err, which may be nil.
func (j *journal) tell(ctx context.Context, began time.Time, operation string, project croft.Project, o actions.Object,
	err error) {
	result := actions.Done
	if err != nil {
		result = string(api.CodeOf(err))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writing)
	defer cancel()
	err = j.log.Append(ctx, actions.NewBatch(actions.Entry{Time: began, Operation: operation, User: j.user,
		Operator: true, Via: "etcd", From: j.machine, Project: project, Object: o, Result: result}))
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.failed = errors.Join(j.failed,
			croft.Errorf(croft.KindOf(err), "%s is not in the action log: %w", operation, err))
	}
}

// Close implements io.Closer.
func (j *journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.failed, j.under.Close())
}
