package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cloud/direct"
	"croft/etcdstore"
	"croft/trust/pki"
)

func caRotateCommand() *cobra.Command {
	var finish, force bool
	cmd := onHost(&cobra.Command{
		Use:   "rotate",
		Short: "Have a new authority follow the present one, and end the trust in that",
		Long: `rotate makes new authorities, whose certificates are believed by those who know the
present ones alone, too. Nothing stops: hosts that run get new certificates within
minutes. Both are trusted until

  croft ca rotate --finish

which refuses as long as a host has a certificate of the authority before; with --force
those hosts have to join again (croft token create --host NAME). Make new certificates
for operators (croft ca issue) in between. When it is done, start croft up anew on each
host that serves etcd: etcd reads whom to trust when it starts, and takes certificates
of the authority before until then.`,
	}, func(cmd *cobra.Command, s hostSettings, _ *slog.Logger) error {
		if force && !finish {
			return croft.Errorf(croft.Invalid, "--force is for --finish")
		}
		own, err := s.trustOnDisk()
		if err != nil {
			return err
		}
		if own.ca == nil {
			return croft.Errorf(croft.NotFound, "this host joined the cloud: its authority is on the host where croft up began it")
		}
		if finish {
			return finishRotation(cmd, own, force)
		}
		return rotate(cmd, own)
	})
	cmd.Flags().BoolVar(&finish, "finish", false, "end the trust in the authority before")
	cmd.Flags().BoolVar(&force, "force", false, "finish although hosts have certificates of the authority before")
	return cmd
}

// rotate has new authorities follow, and this host show that.
func rotate(cmd *cobra.Command, own *trust) error {
	for _, a := range pki.Authorities {
		if _, old, err := own.ca.Certificates(a); err != nil {
			return err
		} else if old != nil {
			return croft.Errorf(croft.Conflict, "the authority before the present one is trusted still: croft ca rotate --finish")
		}
	}
	for _, a := range pki.Authorities {
		if err := own.ca.Rotate(a); err != nil {
			return err
		}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "new authorities sign from now on; hosts get new certificates within some minutes, and then: croft ca rotate --finish")
	return own.spread(cmd.Context())
}

// spread renews this host's certificates and tells the cloud whom to trust, so that
// nobody waits for the process which does so from time to time.
func (t *trust) spread(ctx context.Context) error {
	if len(t.uses) == 0 {
		return nil
	}
	if err := t.ensure(ctx); err != nil {
		return err
	}
	return t.withCloud(ctx, func(ctx context.Context, store *etcdstore.Store) error { return t.publish(ctx, store) })
}

// withCloud does something with the cloud of this host, as its own operator.
func (t *trust) withCloud(ctx context.Context, do func(context.Context, *etcdstore.Store) error) (err error) {
	s := direct.Defaults()
	if err := direct.AddLocal(t.stateDir, &s.Etcd, &s.Placement); err != nil {
		return err
	}
	store, err := s.Etcd.Open(ctx, false)
	if err != nil {
		return fmt.Errorf("the cloud has to run for this: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return do(ctx, store)
}

// finishRotation ends the trust in the authorities before.
func finishRotation(cmd *cobra.Command, own *trust, force bool) error {
	if !force && len(own.uses) > 0 {
		behind, err := own.behind(cmd.Context())
		if err != nil {
			return err
		}
		if len(behind) > 0 {
			return croft.Errorf(croft.Conflict, "not renewed yet: %s; wait until they are, forget those that are gone (croft host forget), or give --force, after which they have to join again",
				strings.Join(behind, ", "))
		}
	}
	ended := 0
	for _, a := range pki.Authorities {
		switch err := own.ca.Retire(a); {
		case err == nil:
			ended++
		case !errors.Is(err, croft.NotFound):
			return err
		}
	}
	if ended == 0 {
		return croft.Errorf(croft.NotFound, "there is nothing to finish: croft ca rotate begins")
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "the authority before is not trusted any more; start croft up anew on each host that serves etcd, so that it knows")
	return own.spread(cmd.Context())
}

// behind names the hosts that have certificates of an authority which was followed.
func (t *trust) behind(ctx context.Context) (names []string, err error) {
	err = t.withCloud(ctx, func(ctx context.Context, store *etcdstore.Store) error {
		joined, err := store.AllJoined(ctx)
		if err != nil {
			return err
		}
		hosts, err := store.Hosts(ctx)
		if err != nil {
			return err
		}
		for _, a := range pki.Authorities {
			current, old, err := t.ca.Certificates(a)
			if err != nil {
				return err
			}
			for id, j := range joined {
				stamp, has := j.Certificates[string(a)]
				if old != nil && has && stamp.By != pki.Pin(current) {
					names = append(names, nameOfHost(hosts, id))
				}
			}
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// nameOfHost is what a host is called, its ID where nobody knows.
func nameOfHost(hosts map[croft.HostID]croft.Host, id croft.HostID) string {
	if h, known := hosts[id]; known && h.Name != "" {
		return h.Name
	}
	return string(id)
}
