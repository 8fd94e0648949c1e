package croft_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// TestRequestsChooseTheirProxy forbids implicit use of the environment's proxy: clients and transports are created with
// an explicit transport, and only internal/egress reads the environment.
func TestRequestsChooseTheirProxy(t *testing.T) {
	except := append([]string{"croft/internal/egress", "croft/bench/...", "croft/test/...",
		"croft/cluster/heat/heattest", "croft/placementclient/placementtest"}, testHelpers...)
	for _, p := range packages(t) {
		if matchAny(except, p.ImportPath) {
			continue
		}
		for _, name := range p.GoFiles {
			for _, found := range ownProxies(t, filepath.Join(p.Dir, name), nil) {
				t.Errorf("%s: use egress.Internal, or egress.Outward for servers outside of the cloud", found)
			}
		}
	}
	for text, want := range map[string]int{
		"var _ = http.DefaultTransport": 1, "var _ = http.DefaultClient": 1, "var _ = &http.Client{}": 1,
		"var _ = http.ProxyFromEnvironment": 1, "var _, _ = http.Get(\"\")": 1,
		"var _ = &http.Client{Transport: nil}": 0, "var _ = http.Transport{}": 0,
	} {
		source := "package a\nimport \"net/http\"\n" + text
		if got := ownProxies(t, "a.go", source); len(got) != want {
			t.Errorf("%s: found %q", text, got)
		}
	}
}

// ownProxies lists the places of a file that use the proxy of the environment. text is nil to read the file.
func ownProxies(t *testing.T, file string, text any) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	ofHTTP := func(x ast.Expr) string {
		selected, is := x.(*ast.SelectorExpr)
		if !is {
			return ""
		}
		if from, is := selected.X.(*ast.Ident); !is || from.Name != "http" || from.Obj != nil {
			return ""
		}
		return selected.Sel.Name
	}
	banned := []string{"DefaultTransport", "DefaultClient", "ProxyFromEnvironment", "Get", "Head", "Post", "PostForm"}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if slices.Contains(banned, ofHTTP(n)) {
				found = append(found, fmt.Sprintf("%s has http.%s", fset.Position(n.Pos()), n.Sel.Name))
			}
		case *ast.CompositeLit:
			if ofHTTP(n.Type) == "Client" && !slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
				field, is := e.(*ast.KeyValueExpr)
				return is && field.Key.(*ast.Ident).Name == "Transport"
			}) {
				found = append(found, fmt.Sprintf("%s has an http.Client without Transport", fset.Position(n.Pos())))
			}
		}
		return true
	})
	return found
}
