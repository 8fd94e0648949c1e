package state

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// loading is the state of one Load.
type loading struct {
	ctx      context.Context
	s        *State
	files    files
	problems problems
	ids      problems // problems that renumbering would fix
}

func (l *loading) warn(at Position, format string, args ...any) {
	l.s.Warnings = append(l.s.Warnings, Problem{at, fmt.Sprintf(format, args...)})
}

// read parses a YAML file. A file with mistakes is read as an empty map.
func (l *loading) read(file string, p *problems) *Value {
	text, err := l.files.read(file, maxFile)
	if err == nil {
		var v *Value
		if v, err = parse(file, text); err == nil {
			return v
		}
	}
	at := Position{File: file}
	if m, ok := errors.AsType[*mistake](err); ok {
		at.Line = m.line
	}
	p.add(at, "%s", err)
	return newMap(Position{File: file}, 0)
}

// parallel calls do for 0 to n-1 in several goroutines, until the context ends.
func (l *loading) parallel(n int, do func(i int, p *problems)) {
	var next atomic.Int64
	var all sync.WaitGroup
	found := make([]problems, runtime.GOMAXPROCS(0))
	for w := range found {
		all.Go(func() {
			for l.ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				do(i, &found[w])
			}
		})
	}
	all.Wait()
	for _, one := range found {
		l.problems.list = append(l.problems.list, one.list...)
	}
}
