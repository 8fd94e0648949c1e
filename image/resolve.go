package image

// ReferenceFor resolves a name by the catalog of this machine to the reference that hosts get. NotFound.
func ReferenceFor(name string) (string, error) {
	catalog, err := LoadCatalog(CatalogFiles(), nil)
	if err != nil {
		return "", err
	}
	entry, err := catalog.Resolve(name)
	if err != nil {
		return "", err
	}
	return entry.Reference()
}
