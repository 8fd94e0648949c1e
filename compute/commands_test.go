package compute

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// slowAgent is the agent of a guest in which each command takes a time, if it ends at all.
type slowAgent struct {
	takes   time.Duration // of each command
	answers time.Duration // after which it answers each call
	result  GuestResult
	err     error // of Ended

	began time.Time
	looks int
}

func (s *slowAgent) Start(context.Context, GuestCommand) (int64, error) {
	s.began = time.Now()
	time.Sleep(s.answers)
	return 17, nil
}

func (s *slowAgent) Ended(context.Context, int64) (*GuestResult, error) {
	s.looks++
	time.Sleep(s.answers)
	if s.err != nil || time.Since(s.began) < s.takes {
		return nil, s.err
	}
	r := s.result
	return &r, nil
}

// commanded sends a command over a connection as a server of the API does, and returns the answer.
func commanded(t *testing.T, guest GuestAgent, command GuestCommand) CommandAnswer {
	t.Helper()
	_, a := alone(t)
	server, client := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- newCommands(&API{Agent: a}).converse(t.Context(), server, server, guest, "lab") }()
	var said CommandAnswer
	if err := errors.Join(json.NewEncoder(client).Encode(command), json.NewDecoder(client).Decode(&said)); err != nil {
		t.Fatal(err)
	}
	_ = client.Close()
	<-ended
	return said
}

func TestACommandInAGuestIsWaitedForInBoundedTime(t *testing.T) {
	t.Parallel()
	long := []byte(strings.Repeat("x", MaxGuestOutput+1))
	for _, c := range []struct {
		name  string
		guest *slowAgent
		took  time.Duration // at most; it is as long as the guest, or its time and overtime
		want  CommandAnswer
	}{
		{"one that ends", &slowAgent{takes: 10 * time.Second, result: GuestResult{Exit: 3, Stderr: []byte("no")}},
			11 * time.Second, CommandAnswer{Result: &GuestResult{Exit: 3, Stderr: []byte("no")}}},
		{"one that writes too much", &slowAgent{result: GuestResult{Stdout: long}}, time.Second,
			CommandAnswer{Result: &GuestResult{Stdout: long[1:], Cut: true}}},
		{"one that the guest ends when its time is over", &slowAgent{takes: time.Minute,
			result: GuestResult{Exit: ExitTimedOut}}, time.Minute + time.Second,
			CommandAnswer{Result: &GuestResult{Exit: ExitTimedOut, Late: true}}},
		{"one that says itself that it gave up", &slowAgent{result: GuestResult{Exit: ExitTimedOut}}, time.Second,
			CommandAnswer{Result: &GuestResult{Exit: ExitTimedOut}}},
		{"one that never ends", &slowAgent{takes: time.Hour}, time.Minute + overtime + time.Second,
			CommandAnswer{Error: &CommandError{croft.Unavailable,
				"it has not ended within 1m, and goes on in the guest as process 17", true}}},
		{"an agent that hangs meanwhile", &slowAgent{err: &GuestError{croft.Errorf(croft.Unavailable, "hangs")}},
			time.Second, CommandAnswer{Error: &CommandError{croft.Unavailable, "hangs", true}}},
		{"a hypervisor that fails", &slowAgent{err: croft.Errorf(croft.Unavailable, "libvirt is gone")},
			time.Second, CommandAnswer{Error: &CommandError{croft.Unavailable, "libvirt is gone", false}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got := commanded(t, c.guest, GuestCommand{Words: []string{"x"}, Timeout: time.Minute})
				a, _ := json.Marshal(got)
				b, _ := json.Marshal(c.want)
				if string(a) != string(b) || time.Since(began) > c.took {
					t.Errorf("after %v: %.200s, want %.200s", time.Since(began), a, b)
				}
			})
		})
	}
}

func TestACommandWithoutEndOrNameIsRefused(t *testing.T) {
	t.Parallel()
	for _, command := range []GuestCommand{{Timeout: time.Second}, {Words: []string{"x"}},
		{Words: []string{"x"}, Timeout: LongestGuestCommand + 1}} {
		if got := commanded(t, &slowAgent{}, command); got.Error == nil || got.Error.Kind != croft.Invalid {
			t.Errorf("%+v: %+v", command, got)
		}
	}
}

func TestNobodyLooksAtACommandWhoseClientHasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, a := alone(t)
		server, client := net.Pipe()
		guest := &slowAgent{takes: time.Hour}
		ended := make(chan error, 1)
		go func() { ended <- newCommands(&API{Agent: a}).converse(t.Context(), server, server, guest, "lab") }()
		command := GuestCommand{Words: []string{"x"}, Timeout: time.Minute}
		if err := json.NewEncoder(client).Encode(command); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		_ = client.Close()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(guest.began) > 11*time.Second {
			t.Errorf("it ended with %v after %v", err, time.Since(guest.began))
		}
	})
}

func TestSlowAgentsOfAProjectDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCommands(&API{Agent: &Agent{agentTurns: newAgentTurns()}})
		command := GuestCommand{Words: []string{"x"}, Timeout: time.Second}
		var hostile sync.WaitGroup
		for range 50 {
			hostile.Go(func() {
				_, err := c.run(t.Context(), &slowAgent{answers: 9 * time.Second}, "hostile", command)
				if err != nil && croft.KindOf(err) != croft.Unavailable {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if _, err := c.run(t.Context(), &slowAgent{}, "lab", command); err != nil || time.Since(began) > time.Second {
			t.Errorf("beside 50 slow guests of another project it took %v, %v", time.Since(began), err)
		}
		hostile.Wait()
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the slow guests waited for %v, beyond the time of their commands", took)
		}
	})
}

func TestAGuestRunsFewCommandsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCommands(&API{Agent: &Agent{agentTurns: newAgentTurns()}})
	var leave func()
	for range commandsPerGuest {
		var err error
		if leave, err = c.enter(guest); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.enter(guest); !errors.Is(err, croft.Conflict) {
		t.Errorf("one too many: %v", err)
	}
	leave()
	if _, err := c.enter(guest); err != nil {
		t.Errorf("after the end of one: %v", err)
	}
	if _, err := c.enter("another"); err != nil {
		t.Errorf("of another guest: %v", err)
	}
}
