// Code generated from the table of operations by TestTheClientIsMadeFromTheTable. DO NOT EDIT.

package client

import (
	"context"
	"croft"
	"croft/cluster"
	"croft/compute"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/federation"
	"croft/hosts/audit"
	pools "croft/pool/api"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/usage"
)

// GetRoot: Get the versions of the cloud and of this document.
func (c *Client) GetRoot(ctx context.Context) (api.Cloud, error) {
	return call[api.Cloud](ctx, c, "GET /v1", nil)
}

// Whoami: Get who the caller is.
func (c *Client) Whoami(ctx context.Context) (access.Caller, error) {
	return call[access.Caller](ctx, c, "GET /v1/whoami", nil)
}

// ListInstances: List instances.
func (c *Client) ListInstances(ctx context.Context, in api.InstanceFilter) (api.InstanceList, error) {
	return call[api.InstanceList](ctx, c, "GET /v1/instances", in)
}

// CreateInstance: Create an instance.
func (c *Client) CreateInstance(ctx context.Context, in api.NewInstance) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances", in)
}

// GetInstance: Get an instance.
func (c *Client) GetInstance(ctx context.Context, in api.InstanceShown) (api.Instance, error) {
	return call[api.Instance](ctx, c, "GET /v1/instances/{id}", in)
}

// DestroyInstance: Destroy an instance.
func (c *Client) DestroyInstance(ctx context.Context, in api.InstanceRemoval) (api.Instance, error) {
	return call[api.Instance](ctx, c, "DELETE /v1/instances/{id}", in)
}

// StartInstance: Start a stopped or failed instance.
func (c *Client) StartInstance(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/start", in)
}

// StopInstance: Shut an instance down.
func (c *Client) StopInstance(ctx context.Context, in api.InstanceStop) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/stop", in)
}

// RebootInstance: Shut an instance down and boot it.
func (c *Client) RebootInstance(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/reboot", in)
}

// EjectInstance: Empty the CD drive of an instance.
func (c *Client) EjectInstance(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/eject", in)
}

// RebuildInstance: Replace the disk by a new one from the image.
func (c *Client) RebuildInstance(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/rebuild", in)
}

// ResizeInstance: Change the size of an instance.
func (c *Client) ResizeInstance(ctx context.Context, in api.InstanceSize) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/resize", in)
}

// RecreateInstance: Schedule a lost instance again.
func (c *Client) RecreateInstance(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/recreate", in)
}

// MoveInstance: Move an instance to another host with its disk.
func (c *Client) MoveInstance(ctx context.Context, in api.InstanceMove) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/instances/{id}/move", in)
}

// CancelMove: End the move of an instance whose disk is still being copied.
func (c *Client) CancelMove(ctx context.Context, in api.InstanceChange) (api.Instance, error) {
	return call[api.Instance](ctx, c, "DELETE /v1/instances/{id}/move", in)
}

// KeepInstance: Change when an instance expires, and is destroyed.
func (c *Client) KeepInstance(ctx context.Context, in api.Expiry) (api.Instance, error) {
	return call[api.Instance](ctx, c, "PUT /v1/instances/{id}/expiry", in)
}

// ChangeInstance: Change labels of an instance, when it expires, or whether it is protected.
func (c *Client) ChangeInstance(ctx context.Context, in api.InstancePatch) (api.Instance, error) {
	return call[api.Instance](ctx, c, "PATCH /v1/instances/{id}", in)
}

// GetInstanceUsage: Read what an instance used in the last hour and day.
func (c *Client) GetInstanceUsage(ctx context.Context, in api.InstanceNamed) (compute.UsageHistory, error) {
	return call[compute.UsageHistory](ctx, c, "GET /v1/instances/{id}/usage", in)
}

// RunCommand: Run a command in the guest.
func (c *Client) RunCommand(ctx context.Context, in api.GuestCommand) (api.CommandResult, error) {
	return call[api.CommandResult](ctx, c, "POST /v1/instances/{id}/exec", in)
}

// DiscoverTargets: List instances as targets of Prometheus.
func (c *Client) DiscoverTargets(ctx context.Context, in api.Discovery) ([]api.TargetGroup, error) {
	return call[[]api.TargetGroup](ctx, c, "GET /v1/sd/prometheus", in)
}

// ExplainRequest: List what fits a request, and what each other host lacks.
func (c *Client) ExplainRequest(ctx context.Context, in api.Candidates) (*schedule.Explanation, error) {
	return call[*schedule.Explanation](ctx, c, "POST /v1/candidates", in)
}

// ListClaims: List the claims that are held.
func (c *Client) ListClaims(ctx context.Context, in api.ClaimFilter) (api.InstanceList, error) {
	return call[api.InstanceList](ctx, c, "GET /v1/claims", in)
}

// CreateClaim: Hold a claim for an instance to come.
func (c *Client) CreateClaim(ctx context.Context, in api.ClaimRequest) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/claims", in)
}

// GetClaim: Get a claim that is held.
func (c *Client) GetClaim(ctx context.Context, in api.InstanceNamed) (api.Instance, error) {
	return call[api.Instance](ctx, c, "GET /v1/claims/{id}", in)
}

// ReleaseClaim: Release a claim that is held.
func (c *Client) ReleaseClaim(ctx context.Context, in api.InstanceNamed) (api.Instance, error) {
	return call[api.Instance](ctx, c, "DELETE /v1/claims/{id}", in)
}

// UseClaim: Order the instance that a claim is held for.
func (c *Client) UseClaim(ctx context.Context, in api.ClaimUse) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/claims/{id}/use", in)
}

// ListPools: List the pools whose resources tickets of the project may have.
func (c *Client) ListPools(ctx context.Context, in api.InProject, which ...api.Listing) (api.PoolList, error) {
	return call[api.PoolList](ctx, c, "GET /v1/pools", listed{in, which})
}

// GetPool: Get a pool.
func (c *Client) GetPool(ctx context.Context, in api.PoolNamed) (pools.Pool, error) {
	return call[pools.Pool](ctx, c, "GET /v1/pools/{name}", in)
}

// ChangePool: Change the size of a pool.
func (c *Client) ChangePool(ctx context.Context, in api.PoolChange) (pools.Pool, error) {
	return call[pools.Pool](ctx, c, "PATCH /v1/pools/{name}", in)
}

// ListPoolResources: List the resources of a pool.
func (c *Client) ListPoolResources(ctx context.Context,
	in api.PoolResources, which ...api.Listing) (api.PoolResourceList, error) {
	return call[api.PoolResourceList](ctx, c, "GET /v1/pools/{name}/resources", listed{in, which})
}

// ListTickets: List tickets.
func (c *Client) ListTickets(ctx context.Context, in api.TicketFilter) (api.TicketList, error) {
	return call[api.TicketList](ctx, c, "GET /v1/tickets", in)
}

// OpenTicket: Open a ticket.
func (c *Client) OpenTicket(ctx context.Context, in api.NewTicket) (pools.Ticket, error) {
	return call[pools.Ticket](ctx, c, "POST /v1/tickets", in)
}

// GetTicket: Get a ticket.
func (c *Client) GetTicket(ctx context.Context, in api.TicketAwaited) (pools.Ticket, error) {
	return call[pools.Ticket](ctx, c, "GET /v1/tickets/{id}", in)
}

// CloseTicket: Close a ticket, which gives its resource back.
func (c *Client) CloseTicket(ctx context.Context, in api.TicketNamed) (pools.Ticket, error) {
	return call[pools.Ticket](ctx, c, "DELETE /v1/tickets/{id}", in)
}

// RenewTicket: Restart the lease of a ticket.
func (c *Client) RenewTicket(ctx context.Context, in api.TicketNamed) (pools.Ticket, error) {
	return call[pools.Ticket](ctx, c, "POST /v1/tickets/{id}/renew", in)
}

// ListVolumes: List volumes.
func (c *Client) ListVolumes(ctx context.Context, in api.InProject, which ...api.Listing) (api.VolumeList, error) {
	return call[api.VolumeList](ctx, c, "GET /v1/volumes", listed{in, which})
}

// CreateVolume: Create a volume.
func (c *Client) CreateVolume(ctx context.Context, in api.NewVolume) (api.Volume, error) {
	return call[api.Volume](ctx, c, "POST /v1/volumes", in)
}

// GetVolume: Get a volume.
func (c *Client) GetVolume(ctx context.Context, in api.VolumeNamed) (api.Volume, error) {
	return call[api.Volume](ctx, c, "GET /v1/volumes/{name}", in)
}

// GrowVolume: Make a volume larger, whether it is attached or not.
func (c *Client) GrowVolume(ctx context.Context, in api.VolumeSize) (api.Volume, error) {
	return call[api.Volume](ctx, c, "POST /v1/volumes/{name}/grow", in)
}

// AttachVolume: Attach a volume to an instance that can have it, which may run.
func (c *Client) AttachVolume(ctx context.Context, in api.VolumeAttachment) (api.Volume, error) {
	return call[api.Volume](ctx, c, "POST /v1/volumes/{name}/attach", in)
}

// DetachVolume: Detach a volume from its instance.
func (c *Client) DetachVolume(ctx context.Context, in api.VolumeNamed) (api.Volume, error) {
	return call[api.Volume](ctx, c, "POST /v1/volumes/{name}/detach", in)
}

// RemoveVolume: Remove a volume that is not attached, with its data.
func (c *Client) RemoveVolume(ctx context.Context, in api.VolumeNamed) error {
	return c.do(ctx, "DELETE /v1/volumes/{name}", in)
}

// ListSnapshots: List the snapshots of all instances.
func (c *Client) ListSnapshots(ctx context.Context, in api.InProject, which ...api.Listing) (api.SnapshotList, error) {
	return call[api.SnapshotList](ctx, c, "GET /v1/snapshots", listed{in, which})
}

// CreateSnapshot: Take a snapshot of an instance.
func (c *Client) CreateSnapshot(ctx context.Context, in api.NewSnapshot) (api.Snapshot, error) {
	return call[api.Snapshot](ctx, c, "POST /v1/instances/{id}/snapshots", in)
}

// GetSnapshot: Get a snapshot.
func (c *Client) GetSnapshot(ctx context.Context, in api.SnapshotNamed) (api.Snapshot, error) {
	return call[api.Snapshot](ctx, c, "GET /v1/instances/{id}/snapshots/{snapshot}", in)
}

// RollBackSnapshot: Roll an instance back to its newest snapshot.
func (c *Client) RollBackSnapshot(ctx context.Context, in api.SnapshotRollback) (api.Snapshot, error) {
	return call[api.Snapshot](ctx, c, "POST /v1/instances/{id}/snapshots/{snapshot}/rollback", in)
}

// RemoveSnapshot: Remove a snapshot; the disks keep their data.
func (c *Client) RemoveSnapshot(ctx context.Context, in api.SnapshotNamed) error {
	return c.do(ctx, "DELETE /v1/instances/{id}/snapshots/{snapshot}", in)
}

// ListBackups: List backups.
func (c *Client) ListBackups(ctx context.Context, in api.InProject, which ...api.Listing) (api.BackupList, error) {
	return call[api.BackupList](ctx, c, "GET /v1/backups", listed{in, which})
}

// CreateBackup: Back up an instance.
func (c *Client) CreateBackup(ctx context.Context, in api.NewBackup) (api.Backup, error) {
	return call[api.Backup](ctx, c, "POST /v1/instances/{id}/backups", in)
}

// GetBackup: Get a backup.
func (c *Client) GetBackup(ctx context.Context, in api.BackupNamed) (api.Backup, error) {
	return call[api.Backup](ctx, c, "GET /v1/backups/{name}", in)
}

// CheckBackup: Read all data of a backup, and compare its digests.
func (c *Client) CheckBackup(ctx context.Context, in api.BackupNamed) (api.Backup, error) {
	return call[api.Backup](ctx, c, "POST /v1/backups/{name}/check", in)
}

// RestoreBackup: Restore a backup as a new instance, or in its stopped instance.
func (c *Client) RestoreBackup(ctx context.Context, in api.BackupRestore) (api.Instance, error) {
	return call[api.Instance](ctx, c, "POST /v1/backups/{name}/restore", in)
}

// RemoveBackup: Remove a backup, and the data that no other backup needs.
func (c *Client) RemoveBackup(ctx context.Context, in api.BackupNamed) error {
	return c.do(ctx, "DELETE /v1/backups/{name}", in)
}

// ListUnprotected: List the instances without a recent backup, and for how long.
func (c *Client) ListUnprotected(ctx context.Context,
	in api.OverdueFilter, which ...api.Listing) (api.UnprotectedList, error) {
	return call[api.UnprotectedList](ctx, c, "GET /v1/unprotected-instances", listed{in, which})
}

// ListBackupStores: List the backup stores that a project may use; for operators all.
func (c *Client) ListBackupStores(ctx context.Context,
	in api.InProject, which ...api.Listing) (api.BackupStoreList, error) {
	return call[api.BackupStoreList](ctx, c, "GET /v1/backup-stores", listed{in, which})
}

// CreateBackupStore: Add a backup store.
func (c *Client) CreateBackupStore(ctx context.Context, in api.NewBackupStore) (api.BackupStore, error) {
	return call[api.BackupStore](ctx, c, "POST /v1/backup-stores", in)
}

// GetBackupStore: Get a backup store.
func (c *Client) GetBackupStore(ctx context.Context, in api.BackupStoreInProject) (api.BackupStore, error) {
	return call[api.BackupStore](ctx, c, "GET /v1/backup-stores/{name}", in)
}

// CheckBackupStore: Verify all data of a backup store.
func (c *Client) CheckBackupStore(ctx context.Context, in api.BackupStoreNamed) (api.BackupStore, error) {
	return call[api.BackupStore](ctx, c, "POST /v1/backup-stores/{name}/check", in)
}

// RemoveBackupStore: Forget a backup store without backups; the repository stays.
func (c *Client) RemoveBackupStore(ctx context.Context, in api.BackupStoreRemoval) error {
	return c.do(ctx, "DELETE /v1/backup-stores/{name}", in)
}

// ListBackupSchedules: List backup schedules.
func (c *Client) ListBackupSchedules(ctx context.Context,
	in api.InProject, which ...api.Listing) (api.BackupScheduleList, error) {
	return call[api.BackupScheduleList](ctx, c, "GET /v1/backup-schedules", listed{in, which})
}

// CreateBackupSchedule: Create a backup schedule.
func (c *Client) CreateBackupSchedule(ctx context.Context, in api.NewBackupSchedule) (api.BackupSchedule, error) {
	return call[api.BackupSchedule](ctx, c, "POST /v1/backup-schedules", in)
}

// GetBackupSchedule: Get a backup schedule.
func (c *Client) GetBackupSchedule(ctx context.Context, in api.BackupScheduleNamed) (api.BackupSchedule, error) {
	return call[api.BackupSchedule](ctx, c, "GET /v1/backup-schedules/{name}", in)
}

// RemoveBackupSchedule: Remove a backup schedule; its backups stay.
func (c *Client) RemoveBackupSchedule(ctx context.Context, in api.BackupScheduleNamed) error {
	return c.do(ctx, "DELETE /v1/backup-schedules/{name}", in)
}

// ListCatalogImages: List the images of the cloud's catalog that a project may use.
func (c *Client) ListCatalogImages(ctx context.Context,
	in api.InProject, which ...api.Listing) (api.CatalogImageList, error) {
	return call[api.CatalogImageList](ctx, c, "GET /v1/catalog", listed{in, which})
}

// CreateCatalogImage: Add an image to the cloud's catalog.
func (c *Client) CreateCatalogImage(ctx context.Context, in api.NewCatalogImage) (api.CatalogImage, error) {
	return call[api.CatalogImage](ctx, c, "POST /v1/catalog", in)
}

// GetCatalogImage: Get an image of the cloud's catalog.
func (c *Client) GetCatalogImage(ctx context.Context, in api.CatalogImageNamed) (api.CatalogImage, error) {
	return call[api.CatalogImage](ctx, c, "GET /v1/catalog/{name}", in)
}

// ChangeCatalogImage: Change an image of the cloud's catalog, or share it with projects.
func (c *Client) ChangeCatalogImage(ctx context.Context, in api.CatalogImageChange) (api.CatalogImage, error) {
	return call[api.CatalogImage](ctx, c, "PATCH /v1/catalog/{name}", in)
}

// RemoveCatalogImage: Remove an image from the cloud's catalog.
func (c *Client) RemoveCatalogImage(ctx context.Context, in api.CatalogImageNamed) error {
	return c.do(ctx, "DELETE /v1/catalog/{name}", in)
}

// GetImageUpload: Get how far the upload of an image is.
func (c *Client) GetImageUpload(ctx context.Context, in api.CatalogImageNamed) (api.Upload, error) {
	return call[api.Upload](ctx, c, "GET /v1/catalog/{name}/upload", in)
}

// CompleteImageUpload: Have an upload verified, all of whose bytes have arrived.
func (c *Client) CompleteImageUpload(ctx context.Context, in api.CatalogImageNamed) (api.CatalogImage, error) {
	return call[api.CatalogImage](ctx, c, "POST /v1/catalog/{name}/upload", in)
}

// SaveInstance: Save the disk of an instance as an image.
func (c *Client) SaveInstance(ctx context.Context, in api.SavedImage) (api.CatalogImage, error) {
	return call[api.CatalogImage](ctx, c, "POST /v1/instances/{id}/image", in)
}

// ListKeys: List the keys of a project.
func (c *Client) ListKeys(ctx context.Context, in api.InProject, which ...api.Listing) (api.KeyList, error) {
	return call[api.KeyList](ctx, c, "GET /v1/keys", listed{in, which})
}

// AddKey: Keep a key under a name.
func (c *Client) AddKey(ctx context.Context, in api.NewKey) (schedule.Key, error) {
	return call[schedule.Key](ctx, c, "POST /v1/keys", in)
}

// RemoveKey: Remove a key.
func (c *Client) RemoveKey(ctx context.Context, in api.KeyNamed) error {
	return c.do(ctx, "DELETE /v1/keys/{name}", in)
}

// ListProjects: List the projects that the caller sees.
func (c *Client) ListProjects(ctx context.Context, which ...api.Listing) (api.ProjectList, error) {
	return call[api.ProjectList](ctx, c, "GET /v1/projects", listed{nil, which})
}

// CreateProject: Create a project below another one.
func (c *Client) CreateProject(ctx context.Context, in api.NewProject) (tenant.Tenant, error) {
	return call[tenant.Tenant](ctx, c, "POST /v1/projects", in)
}

// GetProject: Get a project with its members and limits.
func (c *Client) GetProject(ctx context.Context, in api.ProjectNamed) (tenant.Tenant, error) {
	return call[tenant.Tenant](ctx, c, "GET /v1/projects/{project}", in)
}

// ChangeProject: Change the note of a project.
func (c *Client) ChangeProject(ctx context.Context, in api.ProjectChange) (tenant.Tenant, error) {
	return call[tenant.Tenant](ctx, c, "PATCH /v1/projects/{project}", in)
}

// RemoveProject: Remove a project that has no instances and no projects below it.
func (c *Client) RemoveProject(ctx context.Context, in api.ProjectNamed) error {
	return c.do(ctx, "DELETE /v1/projects/{project}", in)
}

// SetMembers: Say who belongs to a project.
func (c *Client) SetMembers(ctx context.Context, in api.Members) (tenant.Tenant, error) {
	return call[tenant.Tenant](ctx, c, "PUT /v1/projects/{project}/members", in)
}

// ListMappings: List the projects of peers whose members are members of a project.
func (c *Client) ListMappings(ctx context.Context, in api.ProjectNamed) (api.MappingList, error) {
	return call[api.MappingList](ctx, c, "GET /v1/projects/{project}/mappings", in)
}

// SetMapping: Make the members of a project of a peer members of a project.
func (c *Client) SetMapping(ctx context.Context, in api.NewMapping) (federation.Mapping, error) {
	return call[federation.Mapping](ctx, c, "POST /v1/projects/{project}/mappings", in)
}

// RemoveMapping: End the membership of the members of a project of a peer.
func (c *Client) RemoveMapping(ctx context.Context, in api.MappingNamed) error {
	return c.do(ctx, "DELETE /v1/projects/{project}/mappings/{id}/{theirs}", in)
}

// GetQuota: Get the limits of a project and what it uses, with the projects below it.
func (c *Client) GetQuota(ctx context.Context, in api.ProjectNamed) (tenant.Account, error) {
	return call[tenant.Account](ctx, c, "GET /v1/projects/{project}/quota", in)
}

// SetQuota: Set the limits of a project.
func (c *Client) SetQuota(ctx context.Context, in api.Limits) (tenant.Tenant, error) {
	return call[tenant.Tenant](ctx, c, "PUT /v1/projects/{project}/quota", in)
}

// GetUsage: Get what a project used, by day, with the projects below it.
func (c *Client) GetUsage(ctx context.Context, in api.ProjectDays) (usage.Report, error) {
	return call[usage.Report](ctx, c, "GET /v1/projects/{project}/usage", in)
}

// ListUsage: List what projects used, by day, each with the projects below it.
func (c *Client) ListUsage(ctx context.Context, in api.Days) (usage.Report, error) {
	return call[usage.Report](ctx, c, "GET /v1/usage", in)
}

// GetDefaultQuota: Get the limits of projects that have none of their own.
func (c *Client) GetDefaultQuota(ctx context.Context) (tenant.Defaults, error) {
	return call[tenant.Defaults](ctx, c, "GET /v1/quota", nil)
}

// SetDefaultQuota: Set the limits of projects that have none of their own.
func (c *Client) SetDefaultQuota(ctx context.Context, in tenant.Defaults) (tenant.Defaults, error) {
	return call[tenant.Defaults](ctx, c, "PUT /v1/quota", in)
}

// CheckQuotas: Compare the counters of projects with their records.
func (c *Client) CheckQuotas(ctx context.Context) (api.DiscrepancyList, error) {
	return call[api.DiscrepancyList](ctx, c, "GET /v1/quota/check", nil)
}

// RecountQuota: Count again what a project uses.
func (c *Client) RecountQuota(ctx context.Context, in api.ProjectNamed) (tenant.Account, error) {
	return call[tenant.Account](ctx, c, "POST /v1/projects/{project}/quota/recount", in)
}

// ListTokens: List the tokens of a project.
func (c *Client) ListTokens(ctx context.Context, in api.InProject, which ...api.Listing) (api.TokenList, error) {
	return call[api.TokenList](ctx, c, "GET /v1/tokens", listed{in, which})
}

// CreateToken: Make a token.
func (c *Client) CreateToken(ctx context.Context, in api.NewToken) (api.AccessToken, error) {
	return call[api.AccessToken](ctx, c, "POST /v1/tokens", in)
}

// RevokeToken: Revoke a token at once.
func (c *Client) RevokeToken(ctx context.Context, in api.TokenNamed) (api.AccessToken, error) {
	return call[api.AccessToken](ctx, c, "DELETE /v1/tokens/{id}", in)
}

// CreatePageLink: Make a link that logs a browser in to the page with the caller's token.
func (c *Client) CreatePageLink(ctx context.Context) (api.PageLink, error) {
	return call[api.PageLink](ctx, c, "POST /v1/page-links", nil)
}

// ListImages: List the images that requests may name.
func (c *Client) ListImages(ctx context.Context, which ...api.Listing) (api.Catalog, error) {
	return call[api.Catalog](ctx, c, "GET /v1/images", listed{nil, which})
}

// AddImage: Add an image with a checked source, which can be brought to sites.
func (c *Client) AddImage(ctx context.Context, in api.NewSiteImage) (cluster.SiteImage, error) {
	return call[cluster.SiteImage](ctx, c, "POST /v1/images", in)
}

// GetImage: Get an image for sites, and how far it is at each.
func (c *Client) GetImage(ctx context.Context, in api.ImageNamed) (cluster.SiteImage, error) {
	return call[cluster.SiteImage](ctx, c, "GET /v1/images/{name}", in)
}

// RemoveImage: Remove an image for sites; at the sites it stays.
func (c *Client) RemoveImage(ctx context.Context, in api.ImageNamed) error {
	return c.do(ctx, "DELETE /v1/images/{name}", in)
}

// BringImage: Bring an image to a site with a credential of the caller, or say what it is called there.
func (c *Client) BringImage(ctx context.Context, in api.ImageAtSite) (cluster.SiteImage, error) {
	return call[cluster.SiteImage](ctx, c, "PUT /v1/images/{name}/sites/{site}", in)
}

// ListObjects: List the properties and tags of things of a kind.
func (c *Client) ListObjects(ctx context.Context, in api.ObjectFilter) (api.ObjectList, error) {
	return call[api.ObjectList](ctx, c, "GET /v1/objects", in)
}

// GetObject: Get the properties and tags of a thing.
func (c *Client) GetObject(ctx context.Context, in api.ObjectNamed) (objects.Object, error) {
	return call[objects.Object](ctx, c, "GET /v1/{things}/{id}/object", in)
}

// ChangeObject: Change the properties and tags of a thing, all or none.
func (c *Client) ChangeObject(ctx context.Context, in api.ObjectChange) (objects.Object, error) {
	return call[objects.Object](ctx, c, "PATCH /v1/{things}/{id}/object", in)
}

// GetProperty: Get the value of a property.
func (c *Client) GetProperty(ctx context.Context, in api.PropertyNamed) (api.PropertyValue, error) {
	return call[api.PropertyValue](ctx, c, "GET /v1/{things}/{id}/properties/{key}", in)
}

// SetProperty: Set a property.
func (c *Client) SetProperty(ctx context.Context, in api.NewProperty) (objects.Object, error) {
	return call[objects.Object](ctx, c, "PUT /v1/{things}/{id}/properties/{key}", in)
}

// RemoveProperty: Remove a property.
func (c *Client) RemoveProperty(ctx context.Context, in api.PropertyRemoval) (objects.Object, error) {
	return call[objects.Object](ctx, c, "DELETE /v1/{things}/{id}/properties/{key}", in)
}

// AddTag: Put a tag on a thing.
func (c *Client) AddTag(ctx context.Context, in api.TagNamed) (objects.Object, error) {
	return call[objects.Object](ctx, c, "PUT /v1/{things}/{id}/tags/{tag}", in)
}

// RemoveTag: Remove a tag from a thing.
func (c *Client) RemoveTag(ctx context.Context, in api.TagNamed) (objects.Object, error) {
	return call[objects.Object](ctx, c, "DELETE /v1/{things}/{id}/tags/{tag}", in)
}

// GetDefinition: Get the definition that is set for the properties of a kind, or the one that applies.
func (c *Client) GetDefinition(ctx context.Context, in api.DefinitionChosen) (objects.Definition, error) {
	return call[objects.Definition](ctx, c, "GET /v1/definitions/{kind}", in)
}

// SetDefinition: Set the definition of a kind.
func (c *Client) SetDefinition(ctx context.Context, in api.NewDefinition) (objects.Definition, error) {
	return call[objects.Definition](ctx, c, "PUT /v1/definitions/{kind}", in)
}

// RemoveDefinition: Remove the definition of a kind, so that a less explicit one applies.
func (c *Client) RemoveDefinition(ctx context.Context, in api.DefinitionNamed) error {
	return c.do(ctx, "DELETE /v1/definitions/{kind}", in)
}

// CheckDefinition: List the objects that violate the definition that applies now.
func (c *Client) CheckDefinition(ctx context.Context, in api.KindInProject) (api.BreachList, error) {
	return call[api.BreachList](ctx, c, "GET /v1/definitions/{kind}/breaches", in)
}

// ListAggregates: List the aggregates of hosts that requests may name.
func (c *Client) ListAggregates(ctx context.Context, which ...api.Listing) (api.AggregateList, error) {
	return call[api.AggregateList](ctx, c, "GET /v1/aggregates", listed{nil, which})
}

// CreateAggregate: Put hosts together under a name.
func (c *Client) CreateAggregate(ctx context.Context, in api.NewAggregate) (croft.Aggregate, error) {
	return call[croft.Aggregate](ctx, c, "POST /v1/aggregates", in)
}

// GetAggregate: Get an aggregate.
func (c *Client) GetAggregate(ctx context.Context, in api.AggregateNamed) (croft.Aggregate, error) {
	return call[croft.Aggregate](ctx, c, "GET /v1/aggregates/{name}", in)
}

// ChangeAggregate: Change an aggregate, as a whole or not at all.
func (c *Client) ChangeAggregate(ctx context.Context, in api.AggregateChange) (croft.Aggregate, error) {
	return call[croft.Aggregate](ctx, c, "PATCH /v1/aggregates/{name}", in)
}

// RemoveAggregate: Remove an aggregate; its hosts stay.
func (c *Client) RemoveAggregate(ctx context.Context, in api.AggregateRemoval) error {
	return c.do(ctx, "DELETE /v1/aggregates/{name}", in)
}

// ListDistances: List the distances that operators have stated.
func (c *Client) ListDistances(ctx context.Context, which ...api.Listing) (api.DistanceList, error) {
	return call[api.DistanceList](ctx, c, "GET /v1/distances", listed{nil, which})
}

// SetDistance: State a distance between two aggregates, locations or hosts, either way.
func (c *Client) SetDistance(ctx context.Context, in api.NewDistance) (croft.Distances, error) {
	return call[croft.Distances](ctx, c, "PUT /v1/distances", in)
}

// RemoveDistance: Remove a stated distance.
func (c *Client) RemoveDistance(ctx context.Context, in api.DistanceRemoval) error {
	return c.do(ctx, "DELETE /v1/distances", in)
}

// GetDistance: Get the distance between two aggregates, locations or hosts.
func (c *Client) GetDistance(ctx context.Context, in api.DistanceBetween) (croft.Between, error) {
	return call[croft.Between](ctx, c, "GET /v1/distances/between", in)
}

// ListPolicies: List the policies by which CRUSH chooses hosts.
func (c *Client) ListPolicies(ctx context.Context, which ...api.Listing) (api.PolicyList, error) {
	return call[api.PolicyList](ctx, c, "GET /v1/policies", listed{nil, which})
}

// CheckPolicy: Check whether a policy can choose hosts, and store nothing.
func (c *Client) CheckPolicy(ctx context.Context, in api.PolicyCheck) (api.PolicyHints, error) {
	return call[api.PolicyHints](ctx, c, "POST /v1/policies", in)
}

// GetPolicy: Get a policy.
func (c *Client) GetPolicy(ctx context.Context, in api.PolicyNamed) (croft.CrushPolicy, error) {
	return call[croft.CrushPolicy](ctx, c, "GET /v1/policies/{name}", in)
}

// SetPolicy: Store a policy, in place of the one of its name.
func (c *Client) SetPolicy(ctx context.Context, in api.PolicyText) (croft.CrushPolicy, error) {
	return call[croft.CrushPolicy](ctx, c, "PUT /v1/policies/{name}", in)
}

// RemovePolicy: Remove a policy; instances stay where they are.
func (c *Client) RemovePolicy(ctx context.Context, in api.PolicyRemoval) error {
	return c.do(ctx, "DELETE /v1/policies/{name}", in)
}

// GetStanding: Explain whether an instance is on the host that its policy chooses, and why.
func (c *Client) GetStanding(ctx context.Context, in api.InstanceNamed) (*schedule.Standing, error) {
	return call[*schedule.Standing](ctx, c, "GET /v1/instances/{id}/standing", in)
}

// GetCrushMap: Get the CRUSH map of the hosts, with the policies as rules.
func (c *Client) GetCrushMap(ctx context.Context) (api.CrushMap, error) {
	return call[api.CrushMap](ctx, c, "GET /v1/crush", nil)
}

// ListSizes: List the named sizes of instances.
func (c *Client) ListSizes(ctx context.Context, which ...api.Listing) (api.SizeList, error) {
	return call[api.SizeList](ctx, c, "GET /v1/sizes", listed{nil, which})
}

// CreateSize: Create a named size.
func (c *Client) CreateSize(ctx context.Context, in api.NewSize) (croft.Size, error) {
	return call[croft.Size](ctx, c, "POST /v1/sizes", in)
}

// GetSize: Get a size.
func (c *Client) GetSize(ctx context.Context, in api.SizeNamed) (croft.Size, error) {
	return call[croft.Size](ctx, c, "GET /v1/sizes/{name}", in)
}

// ChangeSize: Rename a size, or make it the default.
func (c *Client) ChangeSize(ctx context.Context, in api.SizeChange) (croft.Size, error) {
	return call[croft.Size](ctx, c, "PATCH /v1/sizes/{name}", in)
}

// RemoveSize: Remove a size; instances keep what they have.
func (c *Client) RemoveSize(ctx context.Context, in api.SizeNamed) error {
	return c.do(ctx, "DELETE /v1/sizes/{name}", in)
}

// ListClusters: List clusters.
func (c *Client) ListClusters(ctx context.Context,
	in api.ClusterFilter, which ...api.Listing) (api.ClusterList, error) {
	return call[api.ClusterList](ctx, c, "GET /v1/clusters", listed{in, which})
}

// CreateCluster: Ask for a cluster, and get a new one or one that can be reused.
func (c *Client) CreateCluster(ctx context.Context, in api.NewCluster) (api.Cluster, error) {
	return call[api.Cluster](ctx, c, "POST /v1/clusters", in)
}

// ExplainCluster: Say where a cluster would be built, and why not elsewhere.
func (c *Client) ExplainCluster(ctx context.Context, in api.ClusterCandidates) (cluster.Explanation, error) {
	return call[cluster.Explanation](ctx, c, "POST /v1/candidates/clusters", in)
}

// GetCluster: Get a cluster.
func (c *Client) GetCluster(ctx context.Context, in api.ClusterAwaited) (api.Cluster, error) {
	return call[api.Cluster](ctx, c, "GET /v1/clusters/{id}", in)
}

// ChangeCluster: Resize a cluster, or change its name or how long it stays.
func (c *Client) ChangeCluster(ctx context.Context, in api.ClusterChange) (api.Cluster, error) {
	return call[api.Cluster](ctx, c, "PATCH /v1/clusters/{id}", in)
}

// DeleteCluster: Remove a cluster and all of its hosts.
func (c *Client) DeleteCluster(ctx context.Context, in api.ClusterRemoval) (api.Cluster, error) {
	return call[api.Cluster](ctx, c, "DELETE /v1/clusters/{id}", in)
}

// ListClusterEvents: List what happened to a cluster.
func (c *Client) ListClusterEvents(ctx context.Context, in api.ClusterNamed) (api.ClusterEventList, error) {
	return call[api.ClusterEventList](ctx, c, "GET /v1/clusters/{id}/events", in)
}

// AddClusterHost: Make a cluster larger by one slave.
func (c *Client) AddClusterHost(ctx context.Context, in api.ClusterNamed) (api.Cluster, error) {
	return call[api.Cluster](ctx, c, "POST /v1/clusters/{id}/hosts", in)
}

// RemoveClusterHost: Make a cluster smaller by one slave.
func (c *Client) RemoveClusterHost(ctx context.Context, in api.ClusterHostNamed) (api.Cluster, error) {
	return call[api.Cluster](ctx, c, "DELETE /v1/clusters/{id}/hosts/{host}", in)
}

// EndUse: End a use of a cluster, which is idle without any.
func (c *Client) EndUse(ctx context.Context, in api.UseNamed) error {
	return c.do(ctx, "DELETE /v1/clusters/{id}/uses/{use}", in)
}

// MakeAccount: Get the caller's account on the machines of a cluster, made by its agent if necessary.
func (c *Client) MakeAccount(ctx context.Context, in api.ClusterNamed) (api.ClusterAccount, error) {
	return call[api.ClusterAccount](ctx, c, "PUT /v1/clusters/{id}/accounts/me", in)
}

// RemoveAccount: Forget the caller's account; on the machines it stays.
func (c *Client) RemoveAccount(ctx context.Context, in api.ClusterNamed) error {
	return c.do(ctx, "DELETE /v1/clusters/{id}/accounts/me", in)
}

// ReadOutput: Read an output of one's own cluster, also a secret one; each read is in the action log.
func (c *Client) ReadOutput(ctx context.Context, in api.OutputNamed) (api.ClusterOutput, error) {
	return call[api.ClusterOutput](ctx, c, "POST /v1/clusters/{id}/outputs/{output}", in)
}

// ListSites: List the sites.
func (c *Client) ListSites(ctx context.Context, which ...api.Listing) (api.SiteList, error) {
	return call[api.SiteList](ctx, c, "GET /v1/sites", listed{nil, which})
}

// CreateSite: Create a site.
func (c *Client) CreateSite(ctx context.Context, in api.NewSite) (cluster.Site, error) {
	return call[cluster.Site](ctx, c, "POST /v1/sites", in)
}

// GetSite: Get a site.
func (c *Client) GetSite(ctx context.Context, in api.SiteNamed) (cluster.Site, error) {
	return call[cluster.Site](ctx, c, "GET /v1/sites/{name}", in)
}

// ChangeSite: Change a site; existing clusters are not changed.
func (c *Client) ChangeSite(ctx context.Context, in api.SiteChange) (cluster.Site, error) {
	return call[cluster.Site](ctx, c, "PATCH /v1/sites/{name}", in)
}

// RemoveSite: Remove a site that no implementation, credential or cluster uses.
func (c *Client) RemoveSite(ctx context.Context, in api.SiteNamed) error {
	return c.do(ctx, "DELETE /v1/sites/{name}", in)
}

// GetSiteHealth: Ask a site now how it is, with a credential of the caller if there is one.
func (c *Client) GetSiteHealth(ctx context.Context, in api.SiteInProject) (cluster.SiteHealth, error) {
	return call[cluster.SiteHealth](ctx, c, "GET /v1/sites/{name}/health", in)
}

// ListCredentials: List the caller's credentials, without their secrets.
func (c *Client) ListCredentials(ctx context.Context,
	in api.CredentialFilter, which ...api.Listing) (api.CredentialList, error) {
	return call[api.CredentialList](ctx, c, "GET /v1/credentials", listed{in, which})
}

// CreateCredential: Store a credential, after checking that the site accepts it.
func (c *Client) CreateCredential(ctx context.Context, in api.NewCredential) (cluster.Credential, error) {
	return call[cluster.Credential](ctx, c, "POST /v1/credentials", in)
}

// GetCredential: Get a credential of the caller, without its secret.
func (c *Client) GetCredential(ctx context.Context, in api.CredentialNamed) (cluster.Credential, error) {
	return call[cluster.Credential](ctx, c, "GET /v1/credentials/{id}", in)
}

// ChangeCredential: Change a credential of the caller, which the site has to accept then.
func (c *Client) ChangeCredential(ctx context.Context, in api.CredentialChange) (cluster.Credential, error) {
	return call[cluster.Credential](ctx, c, "PATCH /v1/credentials/{id}", in)
}

// RemoveCredential: Remove a credential that no living cluster needs.
func (c *Client) RemoveCredential(ctx context.Context, in api.CredentialNamed) error {
	return c.do(ctx, "DELETE /v1/credentials/{id}", in)
}

// RewrapSecrets: Encrypt the secrets of other keys again with the first key.
func (c *Client) RewrapSecrets(ctx context.Context) (api.Rewrapped, error) {
	return call[api.Rewrapped](ctx, c, "POST /v1/seals", nil)
}

// ListAppliances: List the appliances that the project may use.
func (c *Client) ListAppliances(ctx context.Context,
	in api.InProject, which ...api.Listing) (api.ApplianceList, error) {
	return call[api.ApplianceList](ctx, c, "GET /v1/appliances", listed{in, which})
}

// CreateAppliance: Create an appliance.
func (c *Client) CreateAppliance(ctx context.Context, in api.NewAppliance) (cluster.Appliance, error) {
	return call[cluster.Appliance](ctx, c, "POST /v1/appliances", in)
}

// GetAppliance: Get an appliance.
func (c *Client) GetAppliance(ctx context.Context, in api.ApplianceNamed) (cluster.Appliance, error) {
	return call[cluster.Appliance](ctx, c, "GET /v1/appliances/{name}", in)
}

// ChangeAppliance: Change an appliance; existing clusters are not changed.
func (c *Client) ChangeAppliance(ctx context.Context, in api.ApplianceChange) (cluster.Appliance, error) {
	return call[cluster.Appliance](ctx, c, "PATCH /v1/appliances/{name}", in)
}

// RemoveAppliance: Remove an appliance without implementations.
func (c *Client) RemoveAppliance(ctx context.Context, in api.ApplianceNamed) error {
	return c.do(ctx, "DELETE /v1/appliances/{name}", in)
}

// ListImplementations: List how sites build an appliance.
func (c *Client) ListImplementations(ctx context.Context,
	in api.ApplianceNamed, which ...api.Listing) (api.ImplementationList, error) {
	return call[api.ImplementationList](ctx, c, "GET /v1/appliances/{name}/implementations", listed{in, which})
}

// AddImplementation: Say how a site builds an appliance, from the next cluster on.
func (c *Client) AddImplementation(ctx context.Context, in api.NewImplementation) (cluster.Implementation, error) {
	return call[cluster.Implementation](ctx, c, "POST /v1/appliances/{name}/implementations", in)
}

// GetImplementation: Get an implementation.
func (c *Client) GetImplementation(ctx context.Context, in api.ImplementationNamed) (cluster.Implementation, error) {
	return call[cluster.Implementation](ctx, c, "GET /v1/appliances/{name}/implementations/{id}", in)
}

// ChangeImplementation: Permit or end the use of an implementation for new clusters.
func (c *Client) ChangeImplementation(ctx context.Context,
	in api.ImplementationChange) (cluster.Implementation, error) {
	return call[cluster.Implementation](ctx, c, "PATCH /v1/appliances/{name}/implementations/{id}", in)
}

// RemoveImplementation: Remove an implementation that no cluster was built by.
func (c *Client) RemoveImplementation(ctx context.Context, in api.ImplementationNamed) error {
	return c.do(ctx, "DELETE /v1/appliances/{name}/implementations/{id}", in)
}

// ListActions: List who did what.
func (c *Client) ListActions(ctx context.Context, in api.LogFilter) (actions.Page, error) {
	return call[actions.Page](ctx, c, "GET /v1/log", in)
}

// ListHostImages: List the images in the cache of a host.
func (c *Client) ListHostImages(ctx context.Context, in api.HostNamed) (api.HeldList, error) {
	return call[api.HeldList](ctx, c, "GET /v1/hosts/{id}/images", in)
}

// RemoveHostImages: Remove an image from the cache of a host, or all that nothing uses.
func (c *Client) RemoveHostImages(ctx context.Context, in api.HostImage) (api.HeldList, error) {
	return call[api.HeldList](ctx, c, "DELETE /v1/hosts/{id}/images", in)
}

// ListHosts: List the hosts.
func (c *Client) ListHosts(ctx context.Context, which ...api.Listing) (api.HostList, error) {
	return call[api.HostList](ctx, c, "GET /v1/hosts", listed{nil, which})
}

// ListStorages: List the shared storage that hosts mount.
func (c *Client) ListStorages(ctx context.Context, which ...api.Listing) (api.StorageList, error) {
	return call[api.StorageList](ctx, c, "GET /v1/storages", listed{nil, which})
}

// GetHost: Get a host with its instances.
func (c *Client) GetHost(ctx context.Context, in api.HostNamed) (api.Host, error) {
	return call[api.Host](ctx, c, "GET /v1/hosts/{id}", in)
}

// ForgetHost: Forget a host that is gone for good.
func (c *Client) ForgetHost(ctx context.Context, in api.HostRemoval) (api.Host, error) {
	return call[api.Host](ctx, c, "DELETE /v1/hosts/{id}", in)
}

// FenceHost: Switch a host off and declare it dead.
func (c *Client) FenceHost(ctx context.Context, in api.HostFence) (api.Host, error) {
	return call[api.Host](ctx, c, "POST /v1/hosts/{id}/fence", in)
}

// TakeHostBack: Take a host back that was declared dead.
func (c *Client) TakeHostBack(ctx context.Context, in api.HostNamed) (api.Host, error) {
	return call[api.Host](ctx, c, "DELETE /v1/hosts/{id}/fence", in)
}

// ListLeftovers: List what lost instances left on a host.
func (c *Client) ListLeftovers(ctx context.Context, in api.HostNamed) (api.LeftoverList, error) {
	return call[api.LeftoverList](ctx, c, "GET /v1/hosts/{id}/leftovers", in)
}

// RemoveLeftover: Remove what an instance left on a host.
func (c *Client) RemoveLeftover(ctx context.Context, in api.LeftoverNamed) error {
	return c.do(ctx, "DELETE /v1/hosts/{id}/leftovers/{instance}", in)
}

// DrainHost: Keep new instances away from a host.
func (c *Client) DrainHost(ctx context.Context, in api.HostNamed) (api.Host, error) {
	return call[api.Host](ctx, c, "POST /v1/hosts/{id}/drain", in)
}

// EnableHost: Let new instances come to a host again.
func (c *Client) EnableHost(ctx context.Context, in api.HostNamed) (api.Host, error) {
	return call[api.Host](ctx, c, "POST /v1/hosts/{id}/enable", in)
}

// AcceptHost: Accept a host's agent on another machine or with another state directory.
func (c *Client) AcceptHost(ctx context.Context, in api.HostNamed) (api.Host, error) {
	return call[api.Host](ctx, c, "POST /v1/hosts/{id}/accept", in)
}

// EmptyHost: Move the instances of a drained host to other hosts.
func (c *Client) EmptyHost(ctx context.Context, in api.HostEmptying) (api.MoveList, error) {
	return call[api.MoveList](ctx, c, "POST /v1/hosts/{id}/moves", in)
}

// RemoveMember: Take the server of etcd on a host out of etcd.
func (c *Client) RemoveMember(ctx context.Context, in api.HostNamed) (api.Host, error) {
	return call[api.Host](ctx, c, "DELETE /v1/hosts/{id}/etcd", in)
}

// ListUsages: List what the guests of a host use at the moment.
func (c *Client) ListUsages(ctx context.Context, in api.HostNamed) (api.GuestUsageList, error) {
	return call[api.GuestUsageList](ctx, c, "GET /v1/hosts/{id}/usages", in)
}

// GetInventory: Get what a host offers of each class of resources, and the claimed part of it.
func (c *Client) GetInventory(ctx context.Context, in api.HostNamed) (api.InventoryList, error) {
	return call[api.InventoryList](ctx, c, "GET /v1/hosts/{id}/inventory", in)
}

// GetHostCapabilities: List the capabilities of a host.
func (c *Client) GetHostCapabilities(ctx context.Context, in api.HostNamed) (api.CapabilityList, error) {
	return call[api.CapabilityList](ctx, c, "GET /v1/hosts/{id}/capabilities", in)
}

// ListResourceTypes: List the classes of resources.
func (c *Client) ListResourceTypes(ctx context.Context, which ...api.Listing) (api.ResourceTypeList, error) {
	return call[api.ResourceTypeList](ctx, c, "GET /v1/resource-types", listed{nil, which})
}

// ListCapabilities: List the capabilities that requests may require or forbid.
func (c *Client) ListCapabilities(ctx context.Context, which ...api.Listing) (api.CapabilityList, error) {
	return call[api.CapabilityList](ctx, c, "GET /v1/capabilities", listed{nil, which})
}

// AddCapability: Make a capability of this cloud's own.
func (c *Client) AddCapability(ctx context.Context, in api.CapabilityNamed) (api.Capability, error) {
	return call[api.Capability](ctx, c, "PUT /v1/capabilities/{name}", in)
}

// RemoveCapability: Remove a capability of this cloud that no host has.
func (c *Client) RemoveCapability(ctx context.Context, in api.CapabilityNamed) (api.Capability, error) {
	return call[api.Capability](ctx, c, "DELETE /v1/capabilities/{name}", in)
}

// ListUsers: List the users that the caller sees.
func (c *Client) ListUsers(ctx context.Context, which ...api.Listing) (api.UserList, error) {
	return call[api.UserList](ctx, c, "GET /v1/users", listed{nil, which})
}

// AuditCloud: Compare records, orders, claims, guests and disks of all hosts.
func (c *Client) AuditCloud(ctx context.Context) (audit.Report, error) {
	return call[audit.Report](ctx, c, "GET /v1/audit", nil)
}

// RepairCloud: Compare, and mend what no guest and no disk on record can suffer from.
func (c *Client) RepairCloud(ctx context.Context) (audit.Report, error) {
	return call[audit.Report](ctx, c, "POST /v1/audit", nil)
}

// ListInvitations: List the join tokens that count.
func (c *Client) ListInvitations(ctx context.Context, which ...api.Listing) (api.InvitationList, error) {
	return call[api.InvitationList](ctx, c, "GET /v1/invitations", listed{nil, which})
}

// CreateInvitation: Make a token with which machines join the cloud as hosts.
func (c *Client) CreateInvitation(ctx context.Context, in api.NewInvitation) (api.Invitation, error) {
	return call[api.Invitation](ctx, c, "POST /v1/invitations", in)
}

// RevokeInvitation: Revoke a join token at once.
func (c *Client) RevokeInvitation(ctx context.Context, in api.InvitationNamed) (api.Invitation, error) {
	return call[api.Invitation](ctx, c, "DELETE /v1/invitations/{name}", in)
}

// ListPartitions: List the partitions that are known here.
func (c *Client) ListPartitions(ctx context.Context, which ...api.Listing) (api.PartitionList, error) {
	return call[api.PartitionList](ctx, c, "GET /v1/partitions", listed{nil, which})
}

// GetPartition: Get a partition.
func (c *Client) GetPartition(ctx context.Context, in api.PartitionNamed) (federation.Partition, error) {
	return call[federation.Partition](ctx, c, "GET /v1/partitions/{id}", in)
}

// RemovePartition: Remove everything that was imported of a partition.
func (c *Client) RemovePartition(ctx context.Context, in api.PartitionNamed) (federation.Partition, error) {
	return call[federation.Partition](ctx, c, "DELETE /v1/partitions/{id}", in)
}

// ListRows: List everything of a kind that was imported of a partition.
func (c *Client) ListRows(ctx context.Context, in api.RowsOfKind) (api.RowList, error) {
	return call[api.RowList](ctx, c, "GET /v1/partitions/{id}/rows", in)
}

// GetCard: Get the card of this cloud.
func (c *Client) GetCard(ctx context.Context, in api.CardRequest) (federation.Card, error) {
	return call[federation.Card](ctx, c, "GET /v1/card", in)
}

// AddPeer: Make another cloud a peer, by its card.
func (c *Client) AddPeer(ctx context.Context, in federation.NewPeer) (federation.Partition, error) {
	return call[federation.Partition](ctx, c, "POST /v1/peers", in)
}

// RemovePeer: End the exchange of requests with a peer.
func (c *Client) RemovePeer(ctx context.Context, in api.PartitionNamed) (federation.Partition, error) {
	return call[federation.Partition](ctx, c, "DELETE /v1/peers/{id}", in)
}

// ListSigners: List the keys with which the servers of this cloud sign for its peers.
func (c *Client) ListSigners(ctx context.Context) (api.SignerList, error) {
	return call[api.SignerList](ctx, c, "GET /v1/signers", nil)
}

// RetireSigner: Take a key out of the cards of this cloud.
func (c *Client) RetireSigner(ctx context.Context, in api.SignerNamed) error {
	return c.do(ctx, "DELETE /v1/signers/{id}", in)
}
