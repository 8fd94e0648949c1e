package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	poolclient "croft/pool/api"
)

const (
	manyTickets   = 10_000
	manyResources = 1_000
)

var poolStock = fmt.Sprintf(
	`stock: {cmd_new: "echo ok", cmd_delete: "true", max: %d, max_starting: 100, max_prealloc: %[1]d, tags: [stock]}`+
		"\n", manyResources)

// crowded measures our server with many tickets that wait for missing resources and many unused resources, and reports
// how long the server's rounds take meanwhile.
func (p plan) crowded(ctx context.Context) error {
	const never = `never: {cmd_new: "false", cmd_delete: "true", max: 1, tags: [rare]}` + "\n"
	return rival{"ours", p.startOurs}.with(ctx, poolStock+never+poolThrownAway, func(s server) error {
		if err := s.stocked(ctx); err != nil {
			return err
		}
		begun := time.Now()
		if err := s.openMany(ctx, manyTickets, p.clients, "rare"); err != nil {
			return err
		}
		fmt.Printf("%-44s %-10s %10.0f\n", fmt.Sprintf("opening %d tickets that wait", manyTickets), "ours",
			manyTickets/time.Since(begun).Seconds())
		if _, err := p.line(ctx, fmt.Sprintf("one client, beside %d waiting and %d up", manyTickets, manyResources),
			"ours", idle{s}); err != nil {
			return err
		}
		before, err := s.sample(ctx)
		if err != nil {
			return err
		}
		if _, err := p.line(ctx, fmt.Sprintf("%d clients, beside the same", p.clients), "ours",
			busy{s, p.clients, ""}); err != nil {
			return err
		}
		after, err := s.sample(ctx)
		fmt.Printf("%-44s %-10s %10s mean, %s at most for 99%%\n", "rounds meanwhile, decided and written", "ours",
			short(after.meanRound(before)), after.boundRound(before, .99))
		return err
	})
}

// rounds measures the round that gives all resources of a paused pool to the first waiting tickets: the answer to
// resuming the pool comes once the round is written.
func (p plan) rounds(ctx context.Context) (took []time.Duration, err error) {
	err = rival{"ours", p.startOurs}.with(ctx, poolStock, func(s server) error {
		for range 3 {
			one, err := s.greatRound(ctx, p.clients)
			if err != nil {
				return err
			}
			took = append(took, one)
		}
		return nil
	})
	return took, err
}

// quiet is the time for etcd to settle after many tickets were opened: it continues to write to its database after it
// has answered.
const quiet = time.Second

func (s server) greatRound(ctx context.Context, clients int) (time.Duration, error) {
	c, err := s.client()
	if err != nil {
		return 0, err
	}
	if err := s.stocked(ctx); err != nil {
		return 0, err
	}
	if _, err := c.Pause(ctx, "stock"); err != nil {
		return 0, err
	}
	if err := s.openMany(ctx, manyTickets, clients, "stock"); err != nil {
		return 0, err
	}
	time.Sleep(quiet)
	begun := time.Now()
	after, err := c.Resume(ctx, "stock")
	took := time.Since(begun)
	if err == nil && after.Taken != manyResources {
		err = fmt.Errorf("the round gave away %d resources of %d", after.Taken, manyResources)
	}
	if err != nil {
		return 0, err
	}
	open, err := c.Tickets(ctx, poolclient.Selection{})
	if err != nil {
		return 0, err
	}
	var group errgroup.Group
	for i := range clients {
		group.Go(func() error {
			for n := len(open.Tickets) - 1 - i; n >= 0; n -= clients { // tickets that wait first, or they are served
				if _, err := c.Close(ctx, open.Tickets[n].ID); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return took, group.Wait()
}

// stocked returns when the pool stock is full and none of it is in use.
func (s server) stocked(ctx context.Context) error {
	c, err := s.client()
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		pool, err := c.Pool(ctx, "stock") // missing until the server has read its file
		switch {
		case err == nil && pool.Free == manyResources:
			return nil
		case time.Now().After(deadline) || ctx.Err() != nil:
			return errors.Join(fmt.Errorf("of %d resources %d are there", manyResources, pool.Free), err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (s server) client() (*poolclient.Client, error) {
	return poolclient.New(poolclient.Config{Endpoints: []string{s.url}})
}

// wearOut serves and closes tickets, and reports the state of the server after each tenth.
func (p plan) wearOut(ctx context.Context) error {
	return rival{"ours", p.startOurs}.with(ctx, poolReused, func(s server) error {
		if err := s.settle(ctx); err != nil {
			return err
		}
		fmt.Printf("%12s %10s %10s %10s %12s %10s %10s %10s\n", "closed", "tickets/s", "ready p50", "p99", "mean round",
			"99% within", "memory", "on disk")
		before, err := s.sample(ctx)
		for tenth := 1; tenth <= 10 && err == nil; tenth++ {
			var r results
			var after sample
			begun := time.Now()
			if err = (batch{s, p.clients, p.closed / 10}).run(ctx, &r); err != nil {
				break
			}
			took := time.Since(begun)
			if after, err = s.sample(ctx); err != nil {
				break
			}
			o := r.outcome(took)
			fmt.Printf("%12d %10.0f %10s %10s %12s %10s %7.0f MiB %6.0f MiB\n", p.closed/10*tenth,
				float64(len(r.ready))/took.Seconds(),
				short(o.median), short(o.p99), short(after.meanRound(before)), after.boundRound(before, .99),
				after.memory/(1<<20), after.disk/(1<<20))
			before = after
		}
		return err
	})
}

// sample is the state of our server at one moment.
type sample struct {
	rounds, seconds float64
	within          map[float64]float64 // the number of rounds that took at most this many seconds
	memory, disk    float64             // bytes
}

func (s server) sample(ctx context.Context) (found sample, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return found, err
	}
	answer, err := s.http.Do(r)
	if err != nil {
		return found, err
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return found, err
	}
	found.within = map[float64]float64{}
	for _, m := range families["croft_pool_round_seconds"].GetMetric() {
		found.rounds, found.seconds = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
		for _, b := range m.GetHistogram().GetBucket() {
			found.within[b.GetUpperBound()] = float64(b.GetCumulativeCount())
		}
	}
	for _, m := range families["process_resident_memory_bytes"].GetMetric() {
		found.memory = m.GetGauge().GetValue()
	}
	found.disk, err = sizeOf(filepath.Join(s.dir, "db.sqlite.croft", "etcd"))
	return found, err
}

func (s sample) meanRound(before sample) time.Duration {
	return time.Duration((s.seconds - before.seconds) / (s.rounds - before.rounds) * float64(time.Second))
}

// boundRound returns the smallest upper bound of a histogram bucket such that at least the given share of the rounds
// took no longer.
func (s sample) boundRound(before sample, share float64) time.Duration {
	best := math.Inf(1)
	for bound, n := range s.within {
		if n-before.within[bound] >= share*(s.rounds-before.rounds) {
			best = min(best, bound)
		}
	}
	return time.Duration(best * float64(time.Second))
}

// sizeOf returns the disk space of the files below a directory.
func sizeOf(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, file os.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		info, err := file.Info()
		if err == nil {
			bytes += float64(info.Size())
		}
		return err
	})
	return bytes, err
}
