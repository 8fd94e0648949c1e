// Package mutants makes one deliberate mistake at a time in the packages that keep records, runs the closest tests, and
// lists the mistakes that no test detects. All mistakes of a package are compiled into one test binary, each behind a
// switch, so a mistake costs only the tests that reach it. No file of the tree changes.
package mutants

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// A Mutant is one mistake.
type Mutant struct {
	ID   int    `json:"-"`    // its switch
	Key  string `json:"key"`  // file, function, and the change: stable when lines move
	Line int    `json:"line"` // its present line
}

// An insertion is text inserted into a file at an offset.
type insertion struct {
	at    int
	text  string
	outer int // at equal offsets, the greater one stands outside
	ends  bool
}

// A mutator collects the mistakes of one file.
type mutator struct {
	name       string // of the file, for keys
	source     []byte
	files      *token.FileSet
	function   string
	next       int // the next switch
	mutants    []Mutant
	insertions []insertion
	seen       map[string]int
	loops      map[ast.Expr]bool // conditions of loops, which would not end if negated
	skipLines  map[int]bool
}

// Mutate returns a file with all its mistakes behind switches, numbered from next on. Lines in skip get none, since
// their mistakes did not compile.
func Mutate(name string, source []byte, next int, skip map[int]bool) (string, []Mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	m := &mutator{name: name, source: source, files: files, next: next, seen: map[string]int{},
		loops: map[ast.Expr]bool{}, skipLines: skip}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		m.function = f.Name.Name
		ast.Inspect(f.Body, m.visit)
	}
	return m.text(), m.mutants, nil
}

func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.ForStmt:
		if n.Cond != nil {
			m.loops[n.Cond] = true
		}
	case *ast.IfStmt:
		m.condition(n.Cond)
	case *ast.BinaryExpr:
		m.binary(n)
	case *ast.CallExpr:
		m.call(n)
	case *ast.CompositeLit:
		m.list(n)
	case *ast.BlockStmt:
		m.statements(n.List)
	case *ast.CaseClause:
		m.statements(n.Body)
	}
	return true
}

// condition negates conditions that are not comparisons.
func (m *mutator) condition(e ast.Expr) {
	switch e.(type) {
	case *ast.BinaryExpr:
		return
	}
	if id, ok := m.mutant(e, m.raw(e)+" -> not"); ok {
		m.wrap(e, fmt.Sprintf("(mutantAt(%d) != (", id), "))")
	}
}

var boundary = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR}

func (m *mutator) binary(e *ast.BinaryExpr) {
	switch e.Op {
	case token.LAND:
		m.drop(e.X, e, "mutantAt(%d) || (", ")")
		m.drop(e.Y, e, "mutantAt(%d) || (", ")")
	case token.LOR:
		m.drop(e.X, e, "!mutantAt(%d) && (", ")")
		m.drop(e.Y, e, "!mutantAt(%d) && (", ")")
	case token.EQL, token.NEQ:
		if m.isError(e) {
			if id, ok := m.mutant(e, m.raw(e)+" -> ignored"); ok && e.Op == token.NEQ {
				m.wrap(e, fmt.Sprintf("(!mutantAt(%d) && (", id), "))")
			} else if ok {
				m.wrap(e, fmt.Sprintf("(mutantAt(%d) || (", id), "))")
			}
			return
		}
		if id, ok := m.mutant(e, m.raw(e)+" -> negated"); ok {
			m.wrap(e, fmt.Sprintf("(mutantAt(%d) != (", id), "))")
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if !m.loops[e] {
			if id, ok := m.mutant(e, m.raw(e)+" -> negated"); ok {
				m.wrap(e, fmt.Sprintf("(mutantAt(%d) != (", id), "))")
			}
		}
		if id, ok := m.mutant(e, m.raw(e)+" -> "+boundary[e.Op].String()); ok {
			m.wrap(e, fmt.Sprintf("mutantOr(%d, (", id), fmt.Sprintf("), (%s) %s (%s))", m.raw(e.X), boundary[e.Op],
				m.raw(e.Y)))
		}
	}
}

// isError reports comparisons of an error with nil.
func (m *mutator) isError(e *ast.BinaryExpr) bool {
	x := m.raw(e.X)
	return m.raw(e.Y) == "nil" && (x == "err" || strings.HasSuffix(strings.ToLower(x), "err"))
}

// drop omits one operand.
func (m *mutator) drop(operand ast.Expr, of *ast.BinaryExpr, before, after string) {
	if id, ok := m.mutant(operand, fmt.Sprintf("%s in %s -> dropped", m.raw(operand), m.raw(of))); ok {
		m.wrap(operand, "("+fmt.Sprintf(before, id), after+")")
	}
}

// call drops one comparison or operation of a transaction.
func (m *mutator) call(c *ast.CallExpr) {
	var args []ast.Expr
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		if m.raw(f) == "errors.Join" {
			m.joined(c.Args)
			return
		}
		if f.Sel.Name != "If" && f.Sel.Name != "Then" || c.Ellipsis.IsValid() || len(c.Args) == 0 {
			return
		}
		args = c.Args
	case *ast.Ident:
		if f.Name != "append" || c.Ellipsis.IsValid() || len(c.Args) < 2 || !m.isOps(c.Args[1:]) {
			return
		}
		args = c.Args[1:]
	default:
		return
	}
	m.elements(args)
}

// joined drops calls whose errors are joined.
func (m *mutator) joined(args []ast.Expr) {
	for _, a := range args {
		if _, ok := a.(*ast.CallExpr); !ok {
			continue
		}
		if id, ok := m.mutant(a, m.raw(a)+" -> left out"); ok {
			m.wrap(a, fmt.Sprintf("func() error { if mutantAt(%d) { return nil }; return ", id), " }()")
		}
	}
}

// list is call for operations and comparisons in a composite literal.
func (m *mutator) list(l *ast.CompositeLit) {
	if t := m.raw(l); !strings.HasPrefix(t, "[]clientv3.Op{") && !strings.HasPrefix(t, "[]clientv3.Cmp{") ||
		len(l.Elts) == 0 {
		return
	}
	ids := m.idsOf(l.Elts)
	if len(ids) > 0 {
		m.wrap(l, "mutantDrop("+ids+", ", "...)")
	}
}

// isOps reports calls that make operations or comparisons of etcd.
func (m *mutator) isOps(args []ast.Expr) bool {
	for _, a := range args {
		c, ok := a.(*ast.CallExpr)
		if !ok {
			return false
		}
		name := m.raw(c.Fun)
		if !strings.HasPrefix(name, "clientv3.") && !slices.Contains([]string{"unchanged", "absent", "exists"}, name) {
			return false
		}
	}
	return true
}

func (m *mutator) elements(args []ast.Expr) {
	ids := m.idsOf(args)
	if ids == "" {
		return
	}
	begin, end := m.offset(args[0].Pos()), m.offset(args[len(args)-1].End())
	m.insertions = append(m.insertions,
		insertion{begin, "mutantDrop(" + ids + ", ", end - begin + 1, false},
		insertion{end, ")...", end - begin + 1, true})
}

// idsOf makes a mutant that lacks each element.
func (m *mutator) idsOf(args []ast.Expr) string {
	var ids []string
	for _, a := range args {
		id, ok := m.mutant(a, m.raw(a)+" -> dropped from the transaction")
		if !ok {
			return ""
		}
		ids = append(ids, fmt.Sprint(id))
	}
	return "[]int{" + strings.Join(ids, ", ") + "}"
}

// statements drops steps, and swaps consecutive ones.
func (m *mutator) statements(list []ast.Stmt) {
	for i, s := range list {
		if !m.isStep(s) {
			continue
		}
		if id, ok := m.mutant(s, m.step(s)+" -> left out"); ok {
			m.wrap(s, fmt.Sprintf("if !mutantAt(%d) { ", id), " }")
		}
		if i+1 < len(list) && m.isStep(list[i+1]) {
			m.swap(s, list[i+1])
		}
	}
}

func (m *mutator) swap(a, b ast.Stmt) {
	id, ok := m.mutant(a, fmt.Sprintf("%s and %s -> swapped", m.step(a), m.step(b)))
	if !ok {
		return
	}
	begin, end := m.offset(a.Pos()), m.offset(b.End())
	// The copy goes after the original, so that the lines above keep their numbers.
	m.insertions = append(m.insertions,
		insertion{begin, fmt.Sprintf("if !mutantAt(%d) { ", id), end - begin, false},
		insertion{end, fmt.Sprintf(" } else { %s\n%s }", m.raw(b), m.raw(a)), end - begin, true})
}

// isStep reports statements that do something and may fail: if err := f(); err != nil { return }, or a call.
func (m *mutator) isStep(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		if !ok {
			return false
		}
		name := m.raw(c.Fun)
		for _, harmless := range []string{"Log.", "log.", "panic", "cancel", "metrics", "Lock", "span", "mutant",
			"fmt.", ".WithLabelValues", "m.note"} {
			if strings.Contains(name, harmless) {
				return false
			}
		}
		return true
	case *ast.IfStmt:
		if s.Init == nil || s.Else != nil || len(s.Body.List) == 0 {
			return false
		}
		init, ok := s.Init.(*ast.AssignStmt)
		if !ok || init.Tok != token.DEFINE || len(init.Lhs) != 1 || m.raw(init.Lhs[0]) != "err" {
			return false
		}
		_, returns := s.Body.List[len(s.Body.List)-1].(*ast.ReturnStmt)
		return returns
	}
	return false
}

// step returns the call in a statement.
func (m *mutator) step(s ast.Stmt) string {
	if s, ok := s.(*ast.IfStmt); ok {
		return m.raw(s.Init)
	}
	return m.raw(s)
}

// mutant takes the next switch; false: mutants do not compile there.
func (m *mutator) mutant(n ast.Node, what string) (int, bool) {
	line := m.files.Position(n.Pos()).Line
	if m.skipLines[line] {
		return 0, false
	}
	what = strings.Join(strings.Fields(what), " ")
	key := fmt.Sprintf("%s %s: %s", m.name, m.function, what)
	if m.seen[key]++; m.seen[key] > 1 {
		key = fmt.Sprintf("%s #%d", key, m.seen[key])
	}
	id := m.next
	m.next++
	m.mutants = append(m.mutants, Mutant{ID: id, Key: key, Line: line})
	return id, true
}

func (m *mutator) wrap(n ast.Node, before, after string) {
	begin, end := m.offset(n.Pos()), m.offset(n.End())
	m.insertions = append(m.insertions, insertion{begin, before, end - begin, false},
		insertion{end, after, end - begin, true})
}

func (m *mutator) offset(p token.Pos) int { return m.files.Position(p).Offset }

func (m *mutator) raw(n ast.Node) string {
	return string(m.source[m.offset(n.Pos()):m.offset(n.End())])
}

// text returns the file with all insertions.
func (m *mutator) text() string {
	// Of several that wrap one node, the one inserted last stands outside.
	order := make([]int, len(m.insertions))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := m.insertions[i], m.insertions[j]
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.ends != b.ends:
			if a.ends {
				return -1
			}
			return 1
		case a.outer != b.outer && a.ends:
			return a.outer - b.outer
		case a.outer != b.outer:
			return b.outer - a.outer
		case a.ends:
			return i - j
		}
		return j - i
	})
	var b strings.Builder
	at := 0
	for _, i := range order {
		in := m.insertions[i]
		b.Write(m.source[at:in.at])
		b.WriteString(in.text)
		at = in.at
	}
	b.Write(m.source[at:])
	return b.String()
}

// switches is the file added to a mutated package: whether a switch is on, and which ones were reached.
const switches = `package %s

import (
	mutantFmt "fmt"
	mutantOS "os"
	mutantStrconv "strconv"
	mutantAtomic "sync/atomic"
)

var (
	mutantOn, _ = mutantStrconv.Atoi(mutantOS.Getenv("CROFT_MUTANT"))
	mutantHits  = mutantOS.Getenv("CROFT_MUTANT_HITS")
	mutantSeen  [%d]mutantAtomic.Bool
)

func mutantAt(id int) bool {
	if mutantHits != "" && !mutantSeen[id].Swap(true) {
		f, err := mutantOS.OpenFile(mutantHits, mutantOS.O_APPEND|mutantOS.O_CREATE|mutantOS.O_WRONLY, 0o600)
		if err == nil {
			mutantFmt.Fprintln(f, id)
			f.Close()
		}
	}
	return id == mutantOn
}

func mutantOr(id int, as, instead bool) bool {
	if mutantAt(id) {
		return instead
	}
	return as
}

func mutantDrop[T any](ids []int, all ...T) []T {
	var left []T
	for i, one := range all {
		if !mutantAt(ids[i]) {
			left = append(left, one)
		}
	}
	return left
}

var _ = mutantOr
var _ = mutantDrop[int]
`
