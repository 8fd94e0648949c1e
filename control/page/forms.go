package page

import (
	"slices"

	"croft"
	"croft/cluster"
	"croft/control/api"
	"croft/control/federation"
	"croft/tenant/access"
)

// forms lists the forms that send one operation each, by the sections of the page. Instances, hosts and projects have
// further actions on their own pages.
func forms() []form {
	name := formInput{Name: "name"}
	expiry := formInput{Name: "expires", Label: "Expires after", As: duration, Help: "A duration such as 8h or 30d. " +
		"Empty: never."}
	instance := formInput{Name: "instance", Label: "Instance", Among: (*visit).instanceNames, Makes: "/instances/new",
		Help: "Name or UUID of an instance of the project."}
	host := formInput{Name: "host", Label: "Host", Operator: true, Among: (*visit).hostNames}
	return []form{
		// Volumes.
		{Op: "createVolume", At: "/volumes/new", Title: "New volume", Does: "Create volume", Back: "/volumes",
			About: "A volume is a disk that outlives instances.", Done: "The volume is being created.",
			Inputs: []formInput{name, {Name: "size_gb", Label: "Size (GiB)", Value: "10", Help: "-"},
				{Name: "storage", Help: "local, shared, or the name of a shared storage. Empty: local, on one host."},
				{Name: "near", Label: "On the host of instance", Among: (*visit).instanceNames}, host}},
		{Op: "growVolume", At: "/volumes/{name}/grow", Title: "Grow volume", Does: "Grow", Back: "/volumes",
			About: "The disk becomes larger, also while a guest uses it. Volumes never shrink.", Now: "getVolume",
			Done: "The volume grows.", Inputs: []formInput{{Name: "size_gb", Label: "Size (GiB)",
				Help: "Not less than now."}}},
		{Op: "attachVolume", At: "/volumes/{name}/attach", Title: "Attach volume", Does: "Attach", Back: "/volumes",
			About: "The guest gets the disk, also while it runs. A volume on one host goes only to the instances " +
				"there.",
			Done: "The volume is being attached.", Inputs: []formInput{instance}},
		{Op: "attachVolume", At: "/instances/{id}/volumes/attach", Title: "Attach a volume", Back: "/instances/{id}",
			About: "The guest gets the disk, also while it runs. The volume has to be on the host of the instance, " +
				"or on shared storage.", Done: "The volume is being attached.",
			Now: "getInstance", Set: map[string]string{"instance": "{id}"}, Beside: []string{"volumes.new"},
			Inputs: []formInput{{Name: "name", Label: "Volume", Among: (*visit).freeVolumes, Fresh: true, Help: "-"}}},
		{Op: "detachVolume", At: "/volumes/{name}/detach", Title: "Detach volume", Does: "Detach", Back: "/volumes",
			About: "The guest loses the disk as soon as it releases it: unmount it in the guest first.",
			Done:  "The volume is being detached."},
		{Op: "removeVolume", At: "/volumes/{name}/remove", Title: "Remove volume", Does: "Remove", Back: "/volumes",
			About: "The volume and everything on it are destroyed.", Final: true, Done: "The volume is being removed."},

		// Backups.
		{Op: "checkBackup", At: "/backups/{name}/check", Title: "Check backup", Does: "Check", Back: "/backups",
			About: "A host reads all of it and compares the digests.", Done: "The backup is being checked."},
		{Op: "restoreBackup", At: "/backups/{name}/restore", Title: "Restore as a new instance", Does: "Restore",
			Back: "/backups", Then: "/instances/{id}", Now: "getBackup",
			About: "A new instance gets disks with the content of the backup.", Done: "The instance is being restored.",
			Inputs: []formInput{{Name: "as", Label: "Name of the new instance", Help: "-"},
				{Name: "without_volumes", Label: "Only its own disk, without volumes"}, host}},
		{Op: "restoreBackup", At: "/backups/{name}/restore-in-place", Title: "Restore in its instance",
			Does: "Restore in place", Back: "/backups", Set: map[string]string{"in_place": "yes"}, Now: "getBackup",
			About: "The disks of the instance, which must be stopped, are replaced by those of the backup. What was " +
				"written since then is lost.", Final: true, Word: "instance_name", Done: "The instance is being " +
				"restored.",
			Inputs: []formInput{{Name: "without_volumes", Label: "Only its own disk, without volumes"}}},
		{Op: "removeBackup", At: "/backups/{name}/remove", Title: "Remove backup", Does: "Remove", Back: "/backups",
			About: "Its instance cannot be restored from it any more.", Final: true, Done: "The backup is being " +
				"removed."},
		{Op: "createBackupSchedule", At: "/backups/schedules/new", Title: "New schedule", Does: "Create schedule",
			Back: "/backups", About: "A schedule makes backups at times, and removes old ones.",
			Done: "The schedule is stored.",
			Inputs: []formInput{name, {Name: "instance", Among: (*visit).instanceNames,
				Help: "Name or UUID. Empty: the instances that have the properties below, or all."},
				{Name: "labels", Label: "Properties", Help: "key=value, several with blanks between."},
				{Name: "store", Among: (*visit).storeNames, Makes: "/backups/stores/new",
					Help: "Empty: the only one that the project may use."},
				{Name: "at", Label: "Each day at", Help: "HH:MM in UTC, or an interval below."},
				{Name: "every", Label: "Interval", As: duration, Help: "A duration such as 6h, in place of a time " +
					"of the day."},
				{Name: "keep.last", Label: "Keep the newest", Help: "A number of backups. Without any of these, all " +
					"are kept."},
				{Name: "keep.hourly", Label: "Keep one of each of the last hours", Help: "-"},
				{Name: "keep.daily", Label: "Keep one of each of the last days", Help: "-"},
				{Name: "keep.weekly", Label: "Keep one of each of the last weeks", Help: "-"},
				{Name: "keep.monthly", Label: "Keep one of each of the last months", Help: "-"}}},
		{Op: "removeBackupSchedule", At: "/backups/schedules/{name}/remove", Title: "Remove schedule", Does: "Remove",
			Back: "/backups", About: "No backups are made by it any more. Those that it made stay.",
			Done: "The schedule is removed.", Final: true},
		{Op: "createBackupStore", At: "/backups/stores/new", Title: "New backup store", Does: "Add store",
			Back: "/backups", About: "A store keeps backups outside of the hosts, in a repository of restic.",
			Done: "A host checks the store.",
			Inputs: []formInput{name, {Name: "repository"}, {Name: "password"},
				{Name: "environment", Label: "Credentials of the backend", Help: "KEY=value, one in a line, such as " +
					"AWS_ACCESS_KEY_ID=… They are sealed, and never shown."},
				{Name: "projects", Help: "Names with blanks between. Empty: all projects."}}},
		{Op: "checkBackupStore", At: "/backups/stores/{name}/check", Title: "Check backup store", Does: "Check",
			Back: "/backups", About: "A host reads all data of the store. That may take hours.",
			Done: "The store is being checked."},
		{Op: "removeBackupStore", At: "/backups/stores/{name}/remove", Title: "Forget backup store", Does: "Forget",
			Back: "/backups", About: "The cloud forgets the store. What the repository contains stays there.",
			Final: true,
			Done:  "The store is forgotten.",
			Inputs: []formInput{{Name: "forget", Label: "Also forget its backups and schedules",
				Help: "Only if the store is gone for good: the name of the store once more."}}},

		// Images.
		{Op: "createCatalogImage", At: "/images/new", Title: "Add image", Back: "/images",
			About: "A host fetches the image once, verifies it and keeps it. To upload a file: croft image add NAME " +
				"FILE.",
			Done: "The image is being fetched.",
			Inputs: []formInput{name, {Name: "url", Label: "URL", Must: true, Help: "An address with what verifies " +
				"it, such as https://…/disk.qcow2#sha256=…, or the name of an image in the server's files."},
				{Name: "max_gb", Label: "At most (GiB)", Value: "10", Help: "Charged until its size is known."},
				{Name: "arch", Label: "Architecture", Help: "Empty: as its name or URL says."},
				{Name: "user", Label: "Login name", Help: "-"}, {Name: "description", Help: "-"},
				{Name: "public", Label: "For all projects", Operator: true}}},
		{Op: "changeCatalogImage", At: "/images/{name}/change", Title: "Change image", Does: "Store", Link: "Change",
			Back: "/images",
			Now:  "getCatalogImage", Done: "The change is stored.",
			Inputs: []formInput{{Name: "user", Label: "Login name", Help: "-"}, {Name: "description", Help: "-"},
				{Name: "share", Label: "Share with projects", Help: "Names with blanks between."},
				{Name: "unshare", Label: "Share no more with projects", Help: "Names with blanks between."},
				{Name: "public", Label: "For all projects", Operator: true}}},
		{Op: "removeCatalogImage", At: "/images/{name}/remove", Title: "Remove image", Does: "Remove", Back: "/images",
			About: "The image and its copies are destroyed. Instances that were made from it stay.", Final: true,
			Done: "The image is being removed."},
		{Op: "saveInstance", At: "/instances/{id}/save", Title: "Save as image", Back: "/instances/{id}",
			Then: "/images", Now: "getInstance", Done: "The image is being made.",
			About: "The disk becomes an image, from which new instances start.",
			Inputs: []formInput{{Name: "name", Label: "Name of the image", Fresh: true}, {Name: "user",
				Label: "Login name", Fresh: true, Help: "-"},
				{Name: "description", Fresh: true, Help: "-"}, {Name: "generalize", Label: "Remove what tells " +
					"machines apart",
					Help: "Machine ID, SSH host keys, leases, MAC addresses, enrolments."}}},

		// Pools and tickets.
		{Op: "changePool", At: "/pools/{name}/size", Title: "Size of the pool", Does: "Set", Link: "Resize",
			Back: "/pools", Now: "getPool",
			About: "What is set here counts in place of the file of pools, also after restarts. An empty field: the " +
				"value of the file again.", Done: "The size is set.",
			Inputs: []formInput{{Name: "max", Label: "The most resources", As: count, Help: "-"},
				{Name: "max_prealloc", Label: "Starting or free at most", As: count, Help: "-"}}},
		{Op: "openTicket", At: "/pools/tickets/new", Title: "Open a ticket", Does: "Open the ticket",
			Link:  "Open a ticket",
			Back:  "/pools",
			About: "A ticket is the right to one resource that has all of its tags.", Done: "The ticket is open.",
			Inputs: []formInput{{Name: "tags", Help: "What the resource has to have: words with blanks between."},
				{Name: "sandbox", Help: "What was used in one sandbox goes to no other. Empty: a new one."},
				{Name: "ttl", Label: "Closed unless used for", As: duration, Help: "A duration such as 2h. Empty: " +
					"as its pool says."},
				{Name: "key", Help: "Requests with the same key get the same ticket."}}},
		{Op: "renewTicket", At: "/pools/tickets/{id}/renew", Title: "Renew ticket", Does: "Renew", Back: "/pools",
			About: "The time after which it is closed starts again.", Done: "The ticket is renewed."},
		{Op: "closeTicket", At: "/pools/tickets/{id}/close", Title: "Close ticket", Does: "Close", Back: "/pools",
			About: "Its resource goes back to the pool, and is cleaned or removed.", Final: true,
			Done: "The ticket is closed."},

		// Clusters.
		{Op: "createCluster", At: "/clusters/new", Title: "New cluster", Does: "Create cluster", Back: "/clusters",
			Then: "/clusters/{id}", About: "A cluster is a master and slaves, which a site builds for an appliance.",
			Done: "The cluster is asked for.",
			Inputs: []formInput{{Name: "name", Help: "Lower-case letters, digits and dashes; starts with a letter."},
				{Name: "appliance", Among: (*visit).applianceNames, Makes: "/sites/appliances/new",
					Help: "-"},
				{Name: "slaves", Value: "0", Help: "Hosts besides the master."},
				{Name: "parameters", Help: "Of the template: key=value, one in a line."},
				{Name: "keys", As: lines, Help: "Public SSH keys that may log in, one in a line."},
				{Name: "hints.sites", Label: "Only at the sites", Help: "Names with blanks between. Empty: any."},
				{Name: "reuse", Help: "auto: a cluster of yours that is large enough is given again."},
				{Name: "keep_idle", Label: "Removed when idle for", As: duration, Help: "Empty: never."}, expiry}},
		{Op: "explainCluster", At: "/clusters/explain", Title: "Where would it be built?", Does: "Ask",
			Link: "Ask where one would be built", Back: "/clusters",
			About: "Says which sites can build such a cluster, and what the others lack. Nothing is created.",
			Shows: "Nothing was created.",
			Inputs: []formInput{{Name: "name", Value: "trial", Help: "-"},
				{Name: "appliance", Among: (*visit).applianceNames, Makes: "/sites/appliances/new",
					Help: "-"}, {Name: "slaves", Value: "0", Help: "-"},
				{Name: "parameters", Help: "Of the template: key=value, one in a line."}}},
		{Op: "changeCluster", At: "/clusters/{id}/change", Title: "Change cluster", Does: "Store",
			Link: "Change the cluster",
			Back: "/clusters/{id}",
			Now:  "getCluster", Done: "The change is stored.",
			Inputs: []formInput{{Name: "name", Help: "-"}, {Name: "slaves", Help: "The cluster grows or shrinks to " +
				"it."},
				{Name: "keep_idle", Label: "Removed when idle for", As: duration, Help: "Empty: never."}}},
		{Op: "addClusterHost", At: "/clusters/{id}/grow", Title: "Add a slave", Back: "/clusters/{id}",
			Now:  "getCluster",
			Done: "The cluster grows by one slave."},
		{Op: "removeClusterHost", At: "/clusters/{id}/hosts/{host}/remove", Title: "Remove a slave", Does: "Remove",
			Back: "/clusters/{id}", Now: "getCluster", Final: true, Word: "host",
			About: "The machine and everything on it are destroyed.", Done: "The cluster shrinks by one slave."},
		{Op: "deleteCluster", At: "/clusters/{id}/remove", Title: "Remove cluster", Does: "Remove",
			Back: "/clusters/{id}",
			Then: "/clusters", Now: "getCluster", Final: true, Done: "The cluster is being removed.",
			About: "All of its machines and everything on them are destroyed.",
			Inputs: []formInput{{Name: "force", Label: "Although others use it", Help: "-"},
				{Name: "abandon", Label: "Forget it without asking its site, where the rest of it stays", Help: "-"}}},
		{Op: "endUse", At: "/clusters/{id}/uses/{use}/end", Title: "End a use", Back: "/clusters/{id}",
			Now:   "getCluster",
			About: "A cluster without uses is idle, and is removed after the time that was chosen for that.",
			Done:  "The use is ended."},
		{Op: "makeAccount", At: "/clusters/{id}/account", Title: "My account", Does: "Show", Link: "My account",
			Back: "/clusters/{id}",
			Now:  "getCluster", About: "The agent of the cluster makes an account for you if you have none yet.",
			Shows: "Keep the password to yourself."},
		{Op: "removeAccount", At: "/clusters/{id}/account/remove", Title: "Forget my account", Back: "/clusters/{id}",
			Now: "getCluster", About: "The cloud forgets it. On the machines it stays.",
			Done: "The account is forgotten."},
		{Op: "readOutput", At: "/clusters/{id}/outputs/{output}", Title: "Read output", Does: "Read",
			Back:  "/clusters/{id}",
			About: "Each read is in the action log.", Shows: "The output of the cluster's template:"},

		// Sites, and what clusters are built of.
		{Op: "createSite", At: "/sites/new", Title: "New site", Does: "Create site", Back: "/sites",
			About: "A site is a place where clusters are built.", Done: "The site is stored.",
			Inputs: append([]formInput{{Name: "name", Help: "Lower-case letters, digits and dashes; starts with a " +
				"letter."},
				{Name: "type", Help: "-"}}, siteInputs...)},
		{Op: "changeSite", At: "/sites/{name}/change", Title: "Change site", Does: "Store", Link: "Change",
			Back: "/sites", Now: "getSite",
			About: "Clusters that exist stay as they are.", Done: "The change is stored.", Inputs: siteInputs},
		{Op: "getSiteHealth", At: "/sites/{name}/health", Title: "Ask the site", Does: "Ask", Back: "/sites",
			About: "Your credential is used.", Shows: "The site's answer now:"},
		{Op: "removeSite", At: "/sites/{name}/remove", Title: "Remove site", Does: "Remove", Back: "/sites",
			Final: true,
			About: "Nothing may use it any more.", Done: "The site is removed."},
		{Op: "createCredential", At: "/sites/credentials/new", Title: "New credential", Does: "Store credential",
			Back: "/sites", About: "The cloud builds clusters at the site in your name with it.",
			Done: "The credential is stored.", Inputs: append([]formInput{{Name: "name"}, {Name: "site",
				Among: (*visit).siteNames, Makes: "/sites/new", Help: "-"}, {Name: "kind", Help: "-"}},
				credentialInputs...)},
		{Op: "changeCredential", At: "/sites/credentials/{id}/change", Title: "Change credential", Does: "Store",
			Link: "Change",
			Back: "/sites", Now: "getCredential", Done: "The change is stored.",
			Inputs: append([]formInput{{Name: "name"}}, credentialInputs...)},
		{Op: "removeCredential", At: "/sites/credentials/{id}/remove", Title: "Remove credential", Does: "Remove",
			Back: "/sites", Now: "getCredential", Final: true, Word: "name", About: "No living cluster may need it.",
			Done: "The credential is removed."},
		{Op: "rewrapSecrets", At: "/sites/seals", Title: "Seal secrets again", Back: "/sites",
			About: "Secrets that were sealed with other keys are sealed with the first key of the settings.",
			Shows: "After this, the other keys are not needed any more."},
		{Op: "createAppliance", At: "/sites/appliances/new", Title: "New appliance", Does: "Create appliance",
			Back: "/sites", About: "An appliance is the purpose of a cluster, such as slurm.",
			Done: "The appliance is stored: say next how a site builds it.",
			Inputs: append([]formInput{{Name: "name", Help: "Lower-case letters, digits and dashes; starts with a " +
				"letter."}},
				applianceInputs...)},
		{Op: "changeAppliance", At: "/sites/appliances/{name}/change", Title: "Change appliance", Does: "Store",
			Link: "Change",
			Back: "/sites", Now: "getAppliance", About: "Clusters that exist stay as they are.",
			Done: "The change is stored.", Inputs: applianceInputs},
		{Op: "removeAppliance", At: "/sites/appliances/{name}/remove", Title: "Remove appliance", Does: "Remove",
			Back: "/sites", Final: true, About: "It may have no implementations any more.",
			Done: "The appliance is removed."},
		{Op: "addImplementation", At: "/sites/appliances/{name}/implementations/new", Title: "New implementation",
			Does: "Add", Link: "Add implementation", Back: "/sites", Now: "getAppliance",
			Done:  "New clusters are built by it.",
			About: "An implementation says how a site builds the appliance. A changed text is a new revision.",
			Inputs: []formInput{{Name: "site", Among: (*visit).siteNames, Makes: "/sites/new", Help: "-"},
				{Name: "template", As: block, Help: "A template of Heat, or the text for the site local. Or name an " +
					"image."},
				{Name: "image", Help: "Name of an image that a template is made of."},
				{Name: "host_resources", Label: "Resources of a host of each role", As: object,
					Help: `JSON: {"master": {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 5}}`},
				{Name: "parameters", Label: "Fixed parameters", Fresh: true, Help: "key=value, one in a line."}}},
		{Op: "changeImplementation", At: "/sites/appliances/{name}/implementations/{id}/change",
			Title: "Change implementation", Does: "Store", Link: "Change", Back: "/sites", Now: "getImplementation",
			Done: "The change is stored.", Inputs: []formInput{{Name: "enabled", Label: "New clusters may be built " +
				"by it"}}},
		{Op: "removeImplementation", At: "/sites/appliances/{name}/implementations/{id}/remove",
			Title: "Remove implementation", Does: "Remove", Back: "/sites", Final: true,
			About: "No cluster may have been built by it.", Done: "The implementation is removed."},
		{Op: "addImage", At: "/sites/images/new", Title: "New image for sites", Does: "Add image", Back: "/sites",
			About: "Implementations of appliances name such images. They are brought to sites.",
			Done:  "The image is stored.",
			Inputs: []formInput{{Name: "name"}, {Name: "url", Label: "URL", Help: "Empty: sites have it already."},
				{Name: "sha256", Label: "SHA-256", Help: "Needed with a URL."}, {Name: "format", Help: "-"},
				{Name: "min_disk_gb", Label: "Smallest disk (GB)", Help: "-"},
				{Name: "min_ram_mb", Label: "Smallest memory (MB)", Help: "-"}}},
		{Op: "bringImage", At: "/sites/images/{name}/bring", Title: "Bring image to a site", Does: "Bring",
			Back:  "/sites",
			About: "Your credential is used. The progress is in the list.", Done: "The image is on its way.",
			Inputs: []formInput{{Name: "site", Among: (*visit).siteNames, Makes: "/sites/new", Help: "-"},
				{Name: "ref", Label: "Its name at the site", Help: "If the site has it already."}}},
		{Op: "removeImage", At: "/sites/images/{name}/remove", Title: "Remove image for sites", Does: "Remove",
			Back: "/sites", Final: true, About: "At the sites it stays.", Done: "The image is removed."},

		// Projects.
		{Op: "changeProject", At: "/project/note", Title: "Change the note", Does: "Store",
			Link: "Change the note",
			Back: "/project",
			Now:  "getProject", Done: "The note is stored.", Inputs: []formInput{{Name: "note", Help: "For people."}}},
		{Op: "removeProject", At: "/project/remove", Title: "Remove the project", Does: "Remove", Back: "/project",
			Then: "/project", Now: "getProject", Final: true, Word: "project", Done: "The project is removed.",
			About: "It may have no instances and no projects below it. Its tokens, keys and members are removed."},
		{Op: "setMapping", At: "/project/mappings/new", Title: "Let in members of a peer's project",
			Does: "Let them in", Link: "Let in a peer's project",
			Back: "/project", See: access.Operates, Done: "The members of the peer's project are let in.",
			Inputs: []formInput{{Name: "peer", Among: (*visit).peerNames, Makes: "/peers/new", Help: "UUID or alias."},
				{Name: "theirs", Label: "Their project", Help: "-"}, {Name: "role", Help: "The highest role that " +
					"they have here."}}},
		{Op: "removeMapping", At: "/project/mappings/{id}/{theirs}/remove", Title: "End the membership of a peer's " +
			"project",
			Does: "End it", Back: "/project", Final: true, Word: "theirs",
			About: "The members of that project lose their role here.", Done: "The membership is ended."},
		{Op: "recountQuota", At: "/project/recount", Title: "Count the use again", Back: "/project",
			About: "What the project uses is counted from the records.", Done: "The counters agree with the records."},
		{Op: "setDefaultQuota", At: "/project/default-quota", Title: "Default limits of the cloud",
			Does: "Set the default limits", Link: "Default limits of the cloud",
			About: "Every project that has no limits of its own has these, also projects to come.",
			Back:  "/project", Now: "getDefaultQuota", Done: "The default limits of the cloud are set.",
			Inputs: []formInput{{Name: "limits", Help: "As VCPU:20,instances:10. -1: no limit."},
				{Name: "generation", As: addressed}}},

		// Sizes, places and definitions.
		{Op: "createSize", At: "/sizes/new", Title: "New size", Does: "Create size", Back: "/sizes",
			About: "Requests for instances name a size in place of amounts.", Done: "The size is stored.",
			Inputs: []formInput{name, {Name: "resources", Value: "VCPU:1,MEMORY_MB:1024,DISK_GB:10", Help: "-"},
				{Name: "default", Label: "For requests that name neither a size nor amounts", Help: "-"}}},
		{Op: "changeSize", At: "/sizes/{name}/change", Title: "Change size", Does: "Store", Link: "Change",
			Back: "/sizes", Now: "getSize",
			About: "The amounts of a size do not change: create another one.", Done: "The change is stored.",
			Inputs: []formInput{{Name: "name", Help: "Instances keep the name of the size that they were made with."},
				{Name: "default", Label: "For requests that name neither a size nor amounts", Help: "-"}}},
		{Op: "removeSize", At: "/sizes/{name}/remove", Title: "Remove size", Does: "Remove", Back: "/sizes",
			Final: true,
			About: "Instances keep what they have.", Done: "The size is removed."},
		{Op: "createAggregate", At: "/aggregates/new", Title: "New aggregate", Does: "Create aggregate",
			Back:  "/aggregates",
			About: "An aggregate is a set of hosts with a name, which requests may ask for.",
			Done:  "The aggregate is stored.",
			Inputs: []formInput{name, {Name: "note", Help: "-"}, {Name: "public", Label: "Tenants may name it",
				Help: "-"},
				{Name: "hosts", Help: "Names or UUIDs with blanks between."}}},
		{Op: "changeAggregate", At: "/aggregates/{name}/change", Title: "Change aggregate", Does: "Store",
			Link: "Change",
			Back: "/aggregates", Now: "getAggregate", Done: "The change is stored.",
			Inputs: []formInput{{Name: "note", Help: "-"}, {Name: "public", Label: "Tenants may name it", Help: "-"},
				{Name: "add_hosts", Label: "Add hosts", Help: "Names or UUIDs with blanks between."},
				{Name: "remove_hosts", Label: "Take out hosts", Help: "Names or UUIDs with blanks between."}}},
		{Op: "removeAggregate", At: "/aggregates/{name}/remove", Title: "Remove aggregate", Does: "Remove",
			Back: "/aggregates", Now: "getAggregate", Final: true, About: "Its hosts stay.",
			Done: "The aggregate is removed."},
		{Op: "setDistance", At: "/aggregates/distances/new", Title: "State a distance", Does: "Set",
			Back:  "/aggregates",
			About: "Between two aggregates, locations such as site1.row2, or hosts, in either direction.",
			Done:  "The distance is stored.",
			Inputs: []formInput{{Name: "a", Label: "From", Help: "-"}, {Name: "b", Label: "To", Help: "-"},
				{Name: "distance", Help: "In any unit; 0: the same place."},
				{Name: "type", Value: "failure", Help: "Such as failure or network."}}},
		{Op: "removeDistance", At: "/aggregates/distances/between/remove", Title: "Remove a distance", Does: "Remove",
			Back: "/aggregates", About: "It is derived from the locations again.", Done: "The distance is removed.",
			Inputs: []formInput{{Name: "a", Label: "From", Help: "-"}, {Name: "b", Label: "To", Help: "-"},
				{Name: "type", Value: "failure", Help: "-"}}},
		{Op: "addCapability", At: "/capabilities/new", Title: "New capability", Does: "Create capability",
			Back: "/capabilities", About: "Hosts offer capabilities, and requests ask for them.",
			Done:   "The capability exists.",
			Inputs: []formInput{{Name: "name", Value: "CUSTOM_", Help: "Starts with CUSTOM_."}}},
		{Op: "removeCapability", At: "/capabilities/{name}/remove", Title: "Remove capability", Does: "Remove",
			Back: "/capabilities", Final: true, About: "No host may have it.", Done: "The capability is removed."},
		{Op: "setDefinition", At: "/definitions/{kind}/change", Title: "Definition of properties", Does: "Store",
			Link: "Change",
			Back: "/definitions", Now: "getDefinition", Done: "The definition is stored.",
			About: "Says which properties objects of the kind may have, and who reads and writes them.",
			Inputs: []formInput{{Name: "unknown", Label: "Properties that it does not name", Help: "-"},
				{Name: "properties", As: object, Help: "JSON: the properties by their keys, with keywords of JSON " +
					"Schema."},
				{Name: "permissions", As: object, Help: "JSON: who reads and writes properties without own " +
					"permissions."}}},
		{Op: "removeDefinition", At: "/definitions/{kind}/remove", Title: "Remove definition", Does: "Remove",
			Back: "/definitions", Final: true, About: "A definition that applies to more kinds counts then, if " +
				"there is one.",
			Done: "The definition is removed."},
		{Op: "checkDefinition", At: "/definitions/{kind}/check", Title: "Check objects", Does: "Check",
			Back:  "/definitions",
			About: "Finds the objects that violate the definition.", Shows: "Objects that violate the definition:"},
		{Op: "removePolicy", At: "/policies/{name}/remove", Title: "Remove policy", Does: "Remove", Back: "/policies",
			Now: "getPolicy", Final: true, About: "Instances stay where they are.", Done: "The policy is removed."},

		// Instances and claims.
		{Op: "runCommand", At: "/instances/{id}/exec", Title: "Run a command in the guest", Does: "Run",
			Link: "Run a command", Back: "/instances/{id}", Now: "getInstance",
			About: "The guest agent runs it, for a minute at most.",
			Shows: "What the command did:",
			Inputs: []formInput{{Name: "command", As: lines, Help: "The program and its arguments, each in its own " +
				"line. No shell reads them."},
				{Name: "stdin", Label: "Input", Help: "What the program reads."}}},
		{Op: "changeObject", At: "/instances/{id}/properties", Title: "Properties and tags", Does: "Store",
			Link: "Properties and tags", Named: "getInstance",
			Back: "/instances/{id}", Now: "getObject", Set: map[string]string{"things": "instances"},
			See:  access.Changes,
			Done: "The change is stored.", Inputs: objectInputs},
		{Op: "changeObject", At: "/hosts/{id}/properties", Title: "Properties and tags", Does: "Store",
			Link: "Properties and tags", Named: "getHost",
			Back: "/hosts/{id}", Now: "getObject", Set: map[string]string{"things": "hosts"}, See: access.Operates,
			Done: "The change is stored.", Inputs: objectInputs},
		{Op: "createClaim", At: "/claims/new", Title: "Hold resources", Does: "Hold", Back: "/claims",
			About: "A claim keeps room for an instance to come.", Done: "The resources are held.",
			Inputs: []formInput{{Name: "name", Help: "-"}, {Name: "size", Among: (*visit).sizeNames,
				Help: "Or write what is needed below."},
				{Name: "query", Label: "Resources", Help: "As VCPU:1,MEMORY_MB:512,DISK_GB:5."},
				{Name: "image", Help: "May be named when the claim is used."},
				{Name: "hold", Label: "For", As: duration, Value: "1h", Help: "-"}}},
		{Op: "useClaim", At: "/claims/{id}/use", Title: "Use the claim", Does: "Start the instance", Back: "/claims",
			Then: "/instances/{id}", Now: "getClaim", Done: "The instance is being created.",
			Inputs: []formInput{{Name: "image", Fresh: true, Help: "Empty: as it was requested."},
				{Name: "keys", As: lines, Help: "Names of stored keys, or public keys, one in a line."}}},
		{Op: "releaseClaim", At: "/claims/{id}/release", Title: "Release the claim", Does: "Release", Back: "/claims",
			Now: "getClaim", Final: true, About: "Others may have the resources.", Done: "The claim is released."},

		// Hosts and peers.
		{Op: "acceptHost", At: "/hosts/{id}/accept", Title: "Accept the agent", Does: "Accept", Back: "/hosts/{id}",
			Now: "getHost", About: "The agent of the host runs on another machine, or with another state directory: " +
				"be sure " +
				"that it is yours.", Done: "The agent is accepted."},
		{Op: "removeMember", At: "/hosts/{id}/etcd", Title: "Take it out of etcd", Back: "/hosts/{id}", Now: "getHost",
			Final: true, About: "The host's server of etcd leaves the others.", Done: "The server of etcd is out."},
		{Op: "createInvitation", At: "/invitations/new", Title: "Invite a host", Does: "Make token",
			Back:  "/invitations",
			About: "A machine joins the cloud with the token: croft up --join.",
			Shows: "This is the only time that the token is shown.",
			Inputs: []formInput{{Name: "life", Label: "Valid for", Value: "1h", Help: "A duration such as 1h."},
				{Name: "note", Help: "What it is for."},
				{Name: "host", Among: (*visit).hostNames, Help: "A host that joins once more. Empty: a new one."},
				{Name: "member", Label: "It may serve etcd"}, {Name: "same_etcd", Label: "It reaches etcd at the " +
					"server's addresses"},
				{Name: "same_placement", Label: "It reaches Placement at the server's address"}}},
		{Op: "revokeInvitation", At: "/invitations/{name}/revoke", Title: "Revoke invitation", Does: "Revoke",
			Back: "/invitations", Final: true, About: "No machine can join with it any more.",
			Done: "The token is revoked."},
		{Op: "addPeer", At: "/peers/new", Title: "New peer", Does: "Add peer", Back: "/peers",
			About: "Users of the other cloud may make requests here, and users of this one there, as mappings of " +
				"projects permit it.", Done: "The cloud is a peer.",
			Inputs: []formInput{{Name: "card", As: object, Help: "The other cloud's card, as it shows it."},
				{Name: "alias", Help: "Empty: the name on the card."}, {Name: "roles", Help: "reader, member and " +
					"project-admin, " +
					"as far as its users may have them."}, {Name: "replace", Label: "Accept other keys of a known peer",
					Help: "Whoever wrote the card can act for the users of the peer."}}},
		{Op: "getCard", At: "/peers/card", Title: "Card of this cloud", Does: "Show", Back: "/peers",
			About: "Another cloud adds this one as a peer by its card.", Shows: "croft peer card writes it as a file.",
			Inputs: []formInput{{Name: "name", Help: "An alias that the others use unless they choose another."},
				{Name: "endpoint", Help: "Where the others reach this API. Empty: where a server listens."}}},
		{Op: "removePeer", At: "/peers/{id}/remove", Title: "End the exchange with the peer", Does: "End it",
			Back: "/peers",
			Now:  "getPartition", Final: true, Word: "alias", About: "Its users have no rights here any more.",
			Done: "The cloud is no peer any more."},
		{Op: "removePartition", At: "/peers/{id}/forget", Title: "Remove what was imported", Does: "Remove",
			Back: "/peers",
			Now:  "getPartition", Final: true, Word: "alias", About: "What this cloud knows from its export is " +
				"removed.",
			Done: "What was imported is removed."},
		{Op: "retireSigner", At: "/peers/signers/{id}/retire", Title: "Retire a key", Does: "Retire", Back: "/peers",
			Final: true, About: "New cards of this cloud are without it.", Done: "The key is retired."},
	}
}

var (
	siteInputs = []formInput{{Name: "auth_url", Label: "Address", Help: "Of Keystone, such as " +
		"https://cloud.example:5000/v3; of a croft, of its API."}, {Name: "region", Help: "-"},
		{Name: "interface", Help: "public, internal or admin."}, {Name: "ca_cert", Label: "Authorities", As: block,
			Help: "In PEM, in addition to those of the system."},
		{Name: "enabled", Label: "New clusters are built there", Value: "yes", Help: "-"},
		{Name: "priority", Help: "Higher ones are chosen first."},
		{Name: "defaults", Label: "Parameters of templates", Help: "key=value, one in a line."},
		{Name: "build_timeout", Label: "A build may take", As: duration, Help: "Empty: an hour."},
		{Name: "max_clusters", Label: "Clusters at once", Help: "0: no limit."}}
	credentialInputs = []formInput{{Name: "username", Help: "At the site."}, {Name: "user_domain", Help: "-"},
		{Name: "project_name", Label: "Project at the site", Help: "-"}, {Name: "project_id", Label: "Or its UUID",
			Help: "-"},
		{Name: "project_domain", Help: "-"}, {Name: "secret", Label: "Password or token"},
		{Name: "verify", Label: "Log in first, and store nothing that the site refuses", Help: "-"}}
	applianceInputs = []formInput{{Name: "description", Help: "-"}, {Name: "min_slaves", Label: "Fewest slaves",
		Help: "-"},
		{Name: "public", Label: "For all projects", Operator: true},
		{Name: "agent", As: object,
			Help: `What makes accounts on its machines, as JSON: {"port": 80, "path": "/new_account/"}`}}
	objectInputs = []formInput{{Name: "set", Label: "Set properties", Help: "key=value, one in a line."},
		{Name: "remove", Label: "Remove properties", Help: "Keys with blanks between."},
		{Name: "add_tags", Label: "Add tags", Help: "With blanks between."},
		{Name: "remove_tags", Label: "Remove tags", Help: "With blanks between."}}
)

// mostNames bounds the names that an input suggests.
const mostNames = 500

// names returns a list of names that can be read, for suggestions: a form is useful without them.
func names[T any](all []T, err error, name func(T) string) (list []string) {
	if err != nil {
		return nil
	}
	for _, one := range all[:min(len(all), mostNames)] {
		list = append(list, name(one))
	}
	return list
}

func (v *visit) instanceNames() []string {
	list, err := v.client.ListInstances(v.ctx, api.InstanceFilter{InProject: v.in(), Page: api.Page{Limit: mostNames}})
	return names(list.Instances, err, func(i api.Instance) string { return i.Name })
}

// freeVolumes suggests volumes that are attached to no instance.
func (v *visit) freeVolumes() []string {
	list, err := v.client.ListVolumes(v.ctx, v.in(), api.Listing{Limit: mostNames})
	list.Volumes = slices.DeleteFunc(list.Volumes, func(one api.Volume) bool { return one.Instance != "" })
	return names(list.Volumes, err, func(one api.Volume) string { return one.Name })
}

func (v *visit) hostNames() []string {
	list, err := v.client.ListHosts(v.ctx, api.Listing{Limit: mostNames})
	return names(list.Hosts, err, func(h api.Host) string { return h.Name })
}

func (v *visit) storeNames() []string {
	list, err := v.client.ListBackupStores(v.ctx, v.in(), api.Listing{Limit: mostNames})
	return names(list.Stores, err, func(s api.BackupStore) string { return s.Name })
}

func (v *visit) siteNames() []string {
	list, err := v.client.ListSites(v.ctx, api.Listing{Limit: mostNames})
	return names(list.Sites, err, func(s cluster.Site) string { return s.Name })
}

func (v *visit) applianceNames() []string {
	list, err := v.client.ListAppliances(v.ctx, v.in(), api.Listing{Limit: mostNames})
	return names(list.Appliances, err, func(a cluster.Appliance) string { return a.Name })
}

func (v *visit) sizeNames() []string {
	list, err := v.client.ListSizes(v.ctx, api.Listing{Limit: mostNames})
	return names(list.Sizes, err, func(s croft.Size) string { return s.Name })
}

func (v *visit) peerNames() []string {
	list, err := v.client.ListPartitions(v.ctx, api.Listing{Limit: mostNames})
	return names(list.Partitions, err, func(p federation.Partition) string { return p.Alias })
}
