package objects

import "croft/tenant/access"

// Allowed returns the rights of a caller to a property.
func (d Definition) Allowed(c access.Caller, kind Kind, key string) (read, write bool) {
	a := d.allowed(c, kind, key)
	return a.read, a.write
}

// Compiles reports why a definition cannot be compiled.
func (d Definition) Compiles() error {
	_, err := d.compile()
	return err
}
