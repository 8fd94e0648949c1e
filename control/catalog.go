package control

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/lazyregexp"
	"croft/internal/redact"
	"croft/schedule"
	"croft/schedule/images"
	"croft/tenant/access"
)

var catalogOperations = noun{Tag: "catalog", Home: true, Object: actions.Image,
	Description: "The cloud's own images, of projects or public. Hosts get them from each other.",
	Operations: []Operation{
		list(Operation{ID: "listCatalogImages", At: "GET /v1/catalog", May: access.Reads,
			Summary: "List the images of the cloud's catalog that a project may use"}, listCatalog),
		do(Operation{ID: "createCatalogImage", At: "POST /v1/catalog", May: access.Changes, Status: http.StatusCreated,
			Conflict: api.NameTaken, Summary: "Add an image to the cloud's catalog",
			Description: "With `url`, a host fetches it. Otherwise its bytes are uploaded in chunks, and then verified, and " +
				"converted if `convert` is set."},
			createCatalogImage),
		do(Operation{ID: "getCatalogImage", At: "GET /v1/catalog/{name}", May: access.Reads,
			Summary: "Get an image of the cloud's catalog"},
			func(ctx context.Context, c *call, in api.CatalogImageNamed) (api.CatalogImage, error) {
				i, err := c.findImage(ctx, in.Name)
				return c.changedImage(ctx, in.Name, i, err)
			}),
		do(Operation{ID: "changeCatalogImage", At: "PATCH /v1/catalog/{name}", May: access.Changes,
			Conflict: api.NameTaken, Summary: "Change an image of the cloud's catalog, or share it with projects"},
			changeCatalogImage),
		do(Operation{ID: "removeCatalogImage", At: "DELETE /v1/catalog/{name}", May: access.Changes,
			Summary: "Remove an image from the cloud's catalog",
			Description: "Instances that were made from it keep their disks, and cannot be rebuilt. An upload, a fetch or " +
				"a save that is going on ends."},
			func(ctx context.Context, c *call, in api.CatalogImageNamed) (nothing, error) {
				i, err := c.ownImage(ctx, in.Name)
				if err == nil {
					i, err = c.Cloud.Catalog.RemoveNamed(ctx, c.home(), in.Name)
				}
				_, err = c.changedImage(ctx, in.Name, i, err)
				return nothing{}, err
			}),
		do(Operation{ID: "getImageUpload", At: "GET /v1/catalog/{name}/upload", May: access.Changes,
			Summary: "Get how far the upload of an image is"},
			func(ctx context.Context, c *call, in api.CatalogImageNamed) (api.Upload, error) {
				i, n, err := c.Cloud.Catalog.Received(ctx, c.home(), in.Name)
				_, err = c.changedImage(ctx, in.Name, i, err)
				return api.Upload{Offset: n, SizeBytes: i.SizeBytes}, err
			}),
		do(Operation{ID: "uploadCatalogImage", At: "PUT /v1/catalog/{name}/upload", May: access.Changes,
			Takes: bytesMedia, Long: true, Summary: "Upload the next bytes of an image",
			Description: "At most 64 MiB. After an error, getImageUpload says where to continue."}, uploadChunk),
		do(Operation{ID: "completeImageUpload", At: "POST /v1/catalog/{name}/upload", May: access.Changes,
			Also:        accepted,
			Summary:     "Have an upload verified, all of whose bytes have arrived",
			Description: "The image is pending until its host has compared the checksum and read the header."},
			func(ctx context.Context, c *call, in api.CatalogImageNamed) (api.CatalogImage, error) {
				i, err := c.Cloud.Catalog.Finish(ctx, c.home(), in.Name)
				if i.State == croft.ImagePending {
					c.status = http.StatusAccepted
				}
				return c.changedImage(ctx, in.Name, i, err)
			}),
		do(Operation{ID: "saveInstance", At: "POST /v1/instances/{id}/image", May: access.Changes,
			Status: http.StatusAccepted, Conflict: api.NameTaken,
			Long:    true, // it claims
			Summary: "Save the disk of an instance as an image",
			Description: "Takes a snapshot, as createSnapshot does, and copies its root disk to an image that needs no " +
				"other file. The snapshot is removed afterwards. Machine identity stays in the image: remove it in the " +
				"guest first."}, saveInstance),
	},
}

// maxChunk is the maximum of bytes in one chunk of an upload, and chunkTime of the time that it takes.
const (
	maxChunk  = 64 << 20
	chunkTime = 10 * time.Minute
)

func listCatalog(ctx context.Context, c *call, _ api.InProject) (list api.CatalogImageList, err error) {
	var all []croft.Image
	if c.project == "" {
		all, err = c.Cloud.Catalog.All(ctx)
	} else {
		var id croft.ProjectID
		if id, err = c.identityOf(c.project); err == nil {
			all, err = c.Cloud.Catalog.Usable(ctx, c.project, id)
		}
	}
	if err != nil {
		return list, err
	}
	list.Images, err = c.images(ctx, all)
	return list, err
}

// hexSHA256 is the form of a SHA-256.
var hexSHA256 = lazyregexp.New("^[0-9a-f]{64}$")

func createCatalogImage(ctx context.Context, c *call, in api.NewCatalogImage) (shown api.CatalogImage, err error) {
	i := croft.Image{Project: c.home(), Name: in.Name, Public: in.Public, User: in.User, Description: in.Description,
		SHA256: in.SHA256, SizeBytes: in.SizeBytes, Arch: in.Arch}
	if err := in.Arch.Check(); err != nil {
		return shown, err
	}
	switch {
	case in.Public && !c.caller.Operator():
		return shown, api.NewProblem(api.PropertyForbidden, "only operators make images public")
	case in.URL != "" && (in.SizeBytes != 0 || in.SHA256 != ""):
		return shown, croft.Errorf(croft.Invalid, "size_bytes and sha256 are about an upload; add #sha256=HEX to the url")
	case in.URL == "" && (in.SizeBytes == 0 || !hexSHA256.MatchString(in.SHA256)):
		return shown, croft.Errorf(croft.Invalid, "give a url or, for an upload, size_bytes and sha256, in lower-case "+
			"hexadecimal digits")
	case in.URL != "" && in.Convert:
		return shown, croft.Errorf(croft.Invalid, "only an upload is converted: fetch the file, and upload it")
	case in.Convert:
		i.Convert, i.ChargedGB = true, max(in.MaxGB, 1)
		if in.MaxGB == 0 {
			i.ChargedGB = defaultImageGB
		}
	case in.URL != "":
		var arch croft.Arch
		if i.Origin, i.Restricted, arch, err = c.published(in.URL); err != nil {
			return shown, err
		}
		i.Arch = cmp.Or(i.Arch, arch)
		i.SizeBytes = max(in.MaxGB, 1) << 30
		if in.MaxGB == 0 {
			i.SizeBytes = defaultImageGB << 30
		}
	}
	i, err = c.Cloud.Catalog.Add(ctx, i)
	if err == nil {
		c.w.Header().Set("Location", "/v1/catalog/"+i.Name)
	}
	return c.changedImage(ctx, in.Name, i, err)
}

// defaultImageGB is the most that an image with an origin, or a converted one, may have by default.
const defaultImageGB = 10

func changeCatalogImage(ctx context.Context, c *call, in api.CatalogImageChange) (shown api.CatalogImage, err error) {
	if in.Public != nil && !c.caller.Operator() {
		return shown, api.NewProblem(api.PropertyForbidden, "only operators make images public, or end that")
	}
	for _, p := range slices.Concat(in.Share, in.Unshare) {
		if err := p.Check(); err != nil {
			return shown, err
		}
	}
	var shares []croft.ImageShare
	for _, p := range in.Share {
		// A name without a project has no identity, and a later project of the name has another one.
		id, err := c.identityOf(p)
		if err != nil {
			return shown, err
		}
		shares = append(shares, croft.ImageShare{Project: p, ID: id})
	}
	i, err := c.Cloud.Catalog.Update(ctx, c.home(), in.Name, func(i *croft.Image) error {
		if in.User != nil {
			i.User = *in.User
		}
		if in.Description != nil {
			i.Description = *in.Description
		}
		if in.Public != nil {
			i.Public = *in.Public
		}
		for _, p := range slices.Concat(in.Share, in.Unshare) {
			i.Shares = slices.DeleteFunc(i.Shares, func(s croft.ImageShare) bool { return s.Project == p })
		}
		i.Shares = append(i.Shares, shares...)
		return nil
	})
	return c.changedImage(ctx, in.Name, i, err)
}

func uploadChunk(ctx context.Context, c *call, in api.UploadChunk) (api.Upload, error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTime)
	defer cancel()
	body := http.MaxBytesReader(c.w, c.r.Body, maxChunk)
	i, n, err := c.Cloud.Catalog.Send(ctx, c.home(), in.Name, in.Offset, body)
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		err = croft.Errorf(croft.Invalid, "a chunk has at most %d MiB", maxChunk>>20)
	}
	_, err = c.changedImage(ctx, in.Name, i, err)
	return api.Upload{Offset: n, SizeBytes: i.SizeBytes}, err
}

func saveInstance(ctx context.Context, c *call, in api.SavedImage) (shown api.CatalogImage, err error) {
	st, err := c.find(ctx)
	if err != nil {
		return shown, err
	}
	i, err := c.Cloud.Catalog.Save(ctx, st, croft.Image{Project: st.Instance.Project, Name: in.Name, User: in.User,
		Description: in.Description, Arch: st.Instance.Spec.Machine.Arch.Known()}, in.Generalize)
	return c.changedImage(ctx, in.Name, i, err)
}

// findImage returns the image of the catalog that a name means for the project of the request. NotFound.
func (c *call) findImage(ctx context.Context, name string) (croft.Image, error) {
	id, err := c.identityOf(c.home())
	if err != nil {
		return croft.Image{}, err
	}
	return c.Cloud.Catalog.Find(ctx, c.home(), id, name)
}

// ownImage returns an image of the project; the answer to callers who only may use it is a refusal with a reason.
func (c *call) ownImage(ctx context.Context, name string) (croft.Image, error) {
	i, err := c.Cloud.Catalog.Own(ctx, c.home(), name)
	if errors.Is(err, croft.NotFound) && c.caller.Operator() {
		if other, found := c.findImage(ctx, name); found == nil {
			err = croft.Errorf(croft.NotFound, "image %s belongs to project %s: add --project %s", name, other.Project,
				other.Project)
		}
	}
	return i, err
}

// changedImage is the result of an operation on a named image of the catalog.
func (c *call) changedImage(ctx context.Context, name string, i croft.Image, err error) (api.CatalogImage, error) {
	if schedule.CheckName(name) == nil {
		c.action.about(c.home(), actions.Object{Kind: actions.Image, ID: string(i.ID), Name: name})
	}
	if errors.Is(err, croft.NotFound) && !c.caller.Operator() {
		err = api.Hidden("image", name)
	}
	if err != nil {
		return api.CatalogImage{}, err
	}
	all, err := c.images(ctx, []croft.Image{i})
	if err != nil {
		return api.CatalogImage{}, err
	}
	return all[0], nil
}

// images returns images of the catalog as the caller sees them.
func (c *call) images(ctx context.Context, all []croft.Image) ([]api.CatalogImage, error) {
	shown := []api.CatalogImage{}
	if len(all) == 0 {
		return shown, nil
	}
	hosts, err := c.Cloud.Catalog.Hosts.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		one := api.CatalogImage{Name: i.Name, ID: i.ID, Project: i.Project, Public: i.Public, State: string(i.State),
			Format: i.Format, SHA256: i.SHA256, SizeBytes: i.SizeBytes, DiskBytes: i.DiskBytes, ChargedGB: i.ChargedGB,
			User: i.User, Description: i.Description, Arch: i.Arch, Made: i.Created, Error: c.shownError(i)}
		if c.project != "" {
			one.Name = images.NameFor(i, c.project)
		}
		if !i.Expires.IsZero() {
			one.Until = &i.Expires
		}
		if c.scope.Sees(i.Project) {
			one.Saved = i.Saved
			for _, s := range i.Shares {
				one.Shares = append(one.Shares, s.Project)
			}
		}
		copies, err := c.Cloud.Catalog.Copies(ctx, i)
		if err != nil {
			return nil, err
		}
		for _, copied := range copies {
			if h, known := hosts[copied.Host]; known && copied.Made && !h.IsDead() {
				one.Copies++
			}
			if i.State == croft.ImagePending && copied.Error != "" {
				one.Error = c.aboutHosts(copied.Error)
			}
			if c.caller.Operator() {
				one.Hosts = append(one.Hosts, hosts[copied.Host].Name)
			}
		}
		if c.caller.Operator() {
			one.Origin = redact.Image(i.Origin)
		}
		shown = append(shown, one)
	}
	return shown, nil
}

// shownError returns why an image is failed or lost, as the caller may see it.
func (c *call) shownError(i croft.Image) string {
	if !c.scope.Sees(i.Project) {
		return ""
	}
	return c.aboutHosts(i.Error)
}

// hasImage returns a Conflict if an instance cannot be rebuilt because its image was removed from the cloud's catalog.
func (c *call) hasImage(ctx context.Context, inst croft.Instance) error {
	if cd := inst.Spec.ISO; cd != nil && !inst.Ejected {
		id, _ := croft.CatalogImage(cd.Image)
		if _, err := c.Cloud.Catalog.Get(ctx, id); id != "" && errors.Is(err, croft.NotFound) {
			return croft.Errorf(croft.Conflict, "rebuild instance %s: its ISO %s was removed from the cloud's catalog: "+
				"`schedule eject %[1]s` first, or request another instance", inst.Name, inst.Spec.Machine.ISO)
		}
	}
	id, _ := croft.CatalogImage(inst.Spec.Image)
	if id == "" {
		return nil
	}
	i, err := c.Cloud.Catalog.Get(ctx, id)
	switch {
	case errors.Is(err, croft.NotFound):
		return croft.Errorf(croft.Conflict, "rebuild instance %s: its image %s was removed from the cloud's catalog, so no "+
			"new disk can be made; it keeps its present one: save that as an image, or request another instance", inst.Name,
			inst.Spec.ImageName)
	case err == nil && i.State == croft.ImageLost && i.Origin == "":
		return croft.Errorf(croft.Conflict, "rebuild instance %s: its image %s is lost: %s", inst.Name, i.Name,
			c.shownError(i))
	}
	return err
}
