package image

// ReferenceFor resolves a name by this machine's catalog to the reference for hosts. NotFound.
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
