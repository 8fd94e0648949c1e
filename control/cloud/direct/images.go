package direct

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"croft"
	"croft/compute"
	"croft/compute/image"
	"croft/control/api"
	"croft/etcdstore"
	catalog "croft/schedule/images"
)

// images implements cloud.Images.
type images struct{ agents agents }

// Catalog is the catalog of this machine.
type Catalog struct {
	Files   []string      // default: image.CatalogFiles
	Sources image.Sources // sources of other images that tenants may name
	// default: image.EntryFor
	Resolve func(string) (image.Entry, error)
}

// Reference returns the reference that hosts use for a name of the catalog, a URL or a path, and the architecture that
// the catalog states. NotFound, Invalid.
func (c Catalog) Reference(name string) (string, croft.Arch, error) {
	resolve := c.Resolve
	if resolve == nil {
		resolve = image.EntryFor
	}
	e, err := resolve(name)
	if err != nil {
		return "", "", err
	}
	reference, err := e.Reference()
	return reference, e.Arch, err
}

// X86Reference is Reference for pools and clusters, which make x86_64 machines. NotFound, Invalid.
func (c Catalog) X86Reference(name string) (string, error) {
	reference, arch, err := c.Reference(name)
	if err == nil {
		err = onlyX86(name, cmp.Or(arch, catalog.GuessArch(name+" "+reference)))
	}
	return reference, err
}

// onlyX86 refuses an image of another architecture for a pool or a cluster. Invalid.
func onlyX86(name string, arch croft.Arch) error {
	if arch.Known() == croft.ArchX86 {
		return nil
	}
	return croft.Errorf(croft.Invalid, "image %.80s is for %s machines, and pools and clusters make x86_64 ones: name an "+
		"image for x86_64", name, arch)
}

// CheckSource returns Denied if tenants may not name the address of a reference.
func (c Catalog) CheckSource(reference string) error { return c.Sources.Check(reference) }

// Public reports whether a reference that CheckSource permits can lead to public internet addresses only.
func (c Catalog) Public(reference string) bool { return c.Sources.Public(reference) }

// List returns the images of the catalog and the sources.
func (c Catalog) List() (api.Catalog, error) {
	files := c.Files
	if files == nil {
		files = image.CatalogFiles()
	}
	catalog, err := image.LoadCatalog(files, nil)
	if err != nil {
		return api.Catalog{}, err
	}
	list := api.Catalog{Images: []api.Image{}, Sources: c.Sources.Prefixes()}
	for _, e := range catalog.List() {
		real, err := catalog.Resolve(e.Name) // for an alias, the image that it means
		if err != nil {
			return api.Catalog{}, err
		}
		list.Images = append(list.Images, api.Image{Name: e.Name, Alias: e.Alias, Description: real.Description,
			User: real.User, VerifiedBy: real.Verification(), URL: real.URL, Arch: real.Arch})
	}
	return list, nil
}

// CatalogReference returns how pools and clusters look up names in the cloud's catalog of images: the reference of the
// image that a name means for a project; without a project, of a public image. NotFound: none. Conflict: it cannot be
// used now. Invalid: it is not for x86_64 machines.
func CatalogReference(store *etcdstore.Store) catalog.Catalog {
	return func(ctx context.Context, p croft.Project, name string) (string, error) {
		i, err := catalogImage(ctx, store, p, name)
		if err == nil && !i.Usable() {
			err = croft.Errorf(croft.Conflict, "image %s is %s: `croft image show %s` shows more", name, i.State, name)
		}
		if err == nil {
			err = onlyX86(name, cmp.Or(i.Arch, catalog.GuessArch(name+" "+i.Origin)))
		}
		if err != nil {
			return "", err
		}
		return i.Reference(), nil
	}
}

func catalogImage(ctx context.Context, store *etcdstore.Store, p croft.Project, name string) (croft.Image, error) {
	if p != "" {
		id, err := store.Projects.Identity(ctx, p)
		if err != nil {
			return croft.Image{}, err
		}
		return store.Images.Find(ctx, p, id, name)
	}
	all, err := store.Images.Usable(ctx, croft.DefaultProject, "")
	if err != nil {
		return croft.Image{}, err
	}
	for _, i := range all { // the default project may have a private image of that name, too
		if i.Public && (i.Name == name || string(i.ID) == name) {
			return i, nil
		}
	}
	return croft.Image{}, croft.Errorf(croft.NotFound, "the cloud's catalog has no public image %.80q", name)
}

// Pull implements cloud.Images.
func (i images) Pull(ctx context.Context, host croft.Host, name, reference string,
	progress func(croft.Progress)) (*compute.Pulled, error) {
	attempt := fmt.Sprintf("pull %s to host %s", name, host.Name)
	body, err := json.Marshal(compute.PullRequest{Image: reference})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	answer, err := i.ask(ctx, attempt, http.MethodPost, host, "", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return followPull(ctx, attempt, host, json.NewDecoder(answer.Body), progress)
}

// ask asks a host about its images, and returns its answer unless it is a refusal. query may be empty, and body nil.
func (i images) ask(ctx context.Context, attempt, method string, host croft.Host, query string,
	body io.Reader) (*http.Response, error) {
	return i.call(ctx, attempt, method, host, "/v1/images"+query, "application/json", body)
}

// call asks a host, and returns its answer unless it is a refusal. body may be nil.
func (i images) call(ctx context.Context, attempt, method string, host croft.Host, path, media string,
	body io.Reader) (*http.Response, error) {
	if !host.Alive || host.API == "" {
		return nil, croft.Errorf(croft.Unavailable, "%s: it is silent; is the agent running there?", attempt)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(host.API, "/")+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	request.Header.Set("Authorization", "Bearer "+host.Token)
	if body != nil {
		request.Header.Set("Content-Type", media)
	}
	client, err := i.agents.client(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, unanswered(ctx, attempt, host, err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, refused(attempt, answer)
	}
	return answer, nil
}

// Received implements images.Uploads of schedule/images.
func (i images) Received(ctx context.Context, host croft.Host, id croft.ImageID) (int64, error) {
	return i.upload(ctx, http.MethodGet, host, "/v1/image-copies/"+string(id)+"/upload", nil)
}

// Send implements images.Uploads of schedule/images.
func (i images) Send(ctx context.Context, host croft.Host, id croft.ImageID, at int64, chunk io.Reader) (int64, error) {
	return i.upload(ctx, http.MethodPut, host, fmt.Sprintf("/v1/image-copies/%s/upload?offset=%d", id, at), chunk)
}

// upload asks a host about the upload of an image, and returns how far it is.
func (i images) upload(ctx context.Context, method string, host croft.Host, path string, chunk io.Reader) (int64,
	error) {
	attempt := "upload the image to its host"
	answer, err := i.call(ctx, attempt, method, host, path, "application/octet-stream", chunk)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var now compute.Upload
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxContents)).Decode(&now); err != nil {
		return 0, unanswered(ctx, attempt, host, err)
	}
	return now.Received, nil
}

// Held implements cloud.Images.
func (i images) Held(ctx context.Context, host croft.Host) ([]compute.Held, error) {
	return i.cached(ctx, http.MethodGet, host, "list the images of host "+host.Name, "")
}

// Remove implements cloud.Images.
func (i images) Remove(ctx context.Context, host croft.Host, reference string) ([]compute.Held, error) {
	return i.cached(ctx, http.MethodDelete, host, "remove images from host "+host.Name, reference)
}

// cached asks a host about its cache.
func (i images) cached(ctx context.Context, method string, host croft.Host, attempt, reference string) ([]compute.Held,
	error) {
	query := ""
	if reference != "" {
		query = "?image=" + url.QueryEscape(reference)
	}
	answer, err := i.ask(ctx, attempt, method, host, query, nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var all []compute.Held
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxContents)).Decode(&all); err != nil {
		return nil, unanswered(ctx, attempt, host, err)
	}
	return all, nil
}

// followPull reads the lines of a response until the host has the image or the pull fails.
func followPull(ctx context.Context, attempt string, host croft.Host, lines *json.Decoder,
	progress func(croft.Progress)) (*compute.Pulled, error) {
	for {
		var line compute.Pull
		if err := lines.Decode(&line); err != nil {
			return nil, unanswered(ctx, attempt, host, err)
		}
		switch {
		case line.Error != nil && line.Error.Kind != "":
			return nil, croft.Errorf(line.Error.Kind, "%s: %s", attempt, said([]byte(line.Error.Message)))
		case line.Error != nil:
			return nil, fmt.Errorf("%s: %s", attempt, said([]byte(line.Error.Message)))
		case line.Image != nil:
			return line.Image, nil
		case line.Progress != nil:
			progress(*line.Progress)
		}
	}
}

// unanswered returns the error for a host that did not answer, or did not answer completely.
func unanswered(ctx context.Context, attempt string, host croft.Host, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", attempt, ctx.Err())
	}
	return croft.Errorf(croft.Unavailable, "%s: it does not answer at %s (%w); is the agent running there?", attempt,
		host.API, cmp.Or(errors.Unwrap(err), err))
}
