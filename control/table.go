package control

import (
	"croft/tenant/access"
)

var cloudOperations = noun{Tag: "cloud",
	Description: "The cloud itself, and who is asking.",
	Operations: []Operation{
		{ID: "getDocument", At: "GET /openapi.json", May: access.EveryHuman, Open: true,
			Summary:     "Get this document",
			Description: "Its SHA-256 is in the answer of `GET /v1`, so that two clouds can be compared.",
			serve:       getDocument},
		{ID: "getRoot", At: "GET /v1", May: access.Everybody, Open: true,
			Summary: "Get the versions of the cloud and of this document",
			serve:   getRoot},
		{ID: "whoami", At: "GET /v1/whoami", May: access.Everybody,
			Summary: "Get who the caller is",
			serve:   whoami},
	},
}

var instanceOperations = noun{Tag: "instances",
	Description: "Virtual machines, named by UUID or by their name in the project. A change answers 202 when it " +
		"is ordered; with `wait` it waits until the host has done it, and answers 200. A wait that runs out of " +
		"time answers 202.",
	Home: true,
	Operations: []Operation{
		{ID: "listInstances", At: "GET /v1/instances", May: access.Reads,
			Summary:     "List instances",
			Description: "In the order of their names. User-data is left out.",
			serve:       (*call).listInstances},
		{ID: "createInstance", At: "POST /v1/instances", May: access.Changes,
			Summary: "Create an instance",
			Description: "Claims resources on a host with room and orders the instance there. A caller that " +
				"chooses the UUID may repeat the request: the same body for the same project gets the same " +
				"instance, another one is refused (409 uuid_reused). 409 no_capacity explains what each host " +
				"lacks.",
			serve: (*call).createInstance},
		{ID: "getInstance", At: "GET /v1/instances/{id}", May: access.Reads,
			Summary: "Get an instance",
			serve:   (*call).getInstance},
		{ID: "destroyInstance", At: "DELETE /v1/instances/{id}", May: access.Changes,
			Summary: "Destroy an instance",
			Description: "Removes it with its disks, addresses, claim and name. Repeating it is no error while it " +
				"goes.",
			serve: (*call).destroyInstance},
		{ID: "startInstance", At: "POST /v1/instances/{id}/start", May: access.Changes,
			Summary: "Start a stopped or failed instance",
			serve:   (*call).startInstance},
		{ID: "stopInstance", At: "POST /v1/instances/{id}/stop", May: access.Changes,
			Summary:     "Shut an instance down",
			Description: "It keeps its claim and its disk.",
			serve:       (*call).stopInstance},
		{ID: "rebootInstance", At: "POST /v1/instances/{id}/reboot", May: access.Changes,
			Summary: "Shut an instance down and boot it",
			serve:   (*call).rebootInstance},
		{ID: "rebuildInstance", At: "POST /v1/instances/{id}/rebuild", May: access.Changes,
			Summary: "Replace the disk by a new one from the image",
			serve:   (*call).rebuildInstance},
		{ID: "recreateInstance", At: "POST /v1/instances/{id}/recreate", May: access.Changes,
			Summary: "Schedule a lost instance again",
			Description: "An instance is lost when an operator declares its host gone for good. It gets a host " +
				"with room and a new disk from its image, and keeps its name, UUID, spec and user-data. 409 " +
				"bad_state: it is not lost. 409 no_capacity: it stays lost.",
			serve: (*call).recreateInstance},
		{ID: "keepInstance", At: "PUT /v1/instances/{id}/expiry", May: access.Changes,
			Summary: "Change when an instance expires, and is destroyed",
			serve:   keepInstance},
		{ID: "watchInstance", At: "GET /v1/instances/{id}/events", May: access.Reads, Stream: true,
			Summary: "Follow an instance",
			Description: "Server-sent events. The data of each is the schema Instance: first as it is now, then " +
				"after every change. An event of the type `gone`, without data, is the last one.",
			serve: (*call).watchInstance},
		{ID: "getInstanceLog", At: "GET /v1/instances/{id}/log", May: access.Reads,
			Summary: "Read what the guest wrote to its serial console",
			serve:   (*call).getInstanceLog},
		{ID: "attachConsole", At: "GET /v1/instances/{id}/console", May: access.Changes, Stream: true, Log: always,
			Summary:     "Attach to the serial console over WebSocket",
			Description: "Binary messages both ways. One caller at a time; a second one gets 409 in_use.",
			serve:       (*call).attachConsole},
		{ID: "forwardPort", At: "GET /v1/instances/{id}/forward", May: access.Changes, Stream: true, Log: always,
			Summary: "Connect to a TCP port of the guest over WebSocket",
			Description: "Binary messages both ways. The server of the API connects to the instance's own " +
				"address.",
			serve: (*call).forwardPort},
		// Changes: like createInstance, since it reveals how full the cloud is
		{ID: "explainRequest", At: "POST /v1/candidates", May: access.Changes, Log: never,
			Summary:     "List what fits a request, and what each other host lacks",
			Description: "Claims nothing. For tenants, hosts are numbered instead of named.",
			serve:       (*call).explainRequest},
		{ID: "watchEvents", At: "GET /v1/events", May: access.Reads, Stream: true,
			Summary: "Follow the changes of all instances",
			Description: "Server-sent events of the type `instance`, whose data is the schema Change. Changes " +
				"come in the order of their revisions, which is the same at every server. Of several changes at " +
				"one revision, the last alone has an id, which is the revision. A client that connects again with " +
				"`Last-Event-ID` misses nothing; it may get a change twice. 410 compacted, or an event of the " +
				"type `compacted`: the changes since then are forgotten, so list again.",
			serve: (*call).watchEvents},
	},
}

var claimOperations = noun{Tag: "claims",
	Description: "Claims that are held until a time for instances to come. Each is an instance in the state held, " +
		"and has its name and its UUID; `DELETE /v1/instances/{id}` releases it too.",
	Operations: []Operation{
		{ID: "listClaims", At: "GET /v1/claims", May: access.Reads,
			Summary:     "List the claims that are held",
			Description: "In the order of their names, as instances in the state held.",
			serve:       listClaims},
		{ID: "createClaim", At: "POST /v1/claims", May: access.Changes,
			Summary: "Hold a claim for an instance to come",
			Description: "Claims resources on a host with room, with quota and the seats of groups, and boots " +
				"nothing. The claim is used, or is released at the end of the time, or before by a caller with " +
				"the right to. The UUID may be chosen and the request repeated, as in createInstance. " +
				"Reservations that begin later are not supported.",
			serve: createClaim},
		{ID: "getClaim", At: "GET /v1/claims/{id}", May: access.Reads,
			Summary: "Get a claim that is held",
			serve:   getClaim},
		{ID: "releaseClaim", At: "DELETE /v1/claims/{id}", May: access.Changes,
			Summary: "Release a claim that is held",
			Description: "409 bad_state if it is not held any more. An instance that it was used for is not " +
				"harmed.",
			serve: releaseClaim},
		{ID: "useClaim", At: "POST /v1/claims/{id}/use", May: access.Changes,
			Summary: "Order the instance that a claim is held for",
			Description: "On the host of the claim. What the body leaves out is as the claim was asked for. Of " +
				"several uses and releases one takes effect, and the others get 409 bad_state.",
			serve: useClaim},
	},
}

var imageOperations = noun{Tag: "images",
	Description: "The images that requests for instances may name.",
	Operations: []Operation{
		{ID: "listImages", At: "GET /v1/images", May: access.EveryHuman,
			Summary: "List the images that requests may name",
			Description: "The images of the catalog, and the beginnings of the addresses of others that tenants " +
				"may name besides. Operators may name any.",
			serve: listImages},
		// Operates: the server fetches its URL
		{ID: "addImage", At: "POST /v1/images", May: access.Operates,
			Summary: "Add an image with a checked source, which can be brought to sites",
			serve:   addImage},
		{ID: "getImage", At: "GET /v1/images/{name}", May: access.EveryHuman,
			Summary: "Get an image for sites, and how far it is at each",
			serve:   getImage},
		{ID: "removeImage", At: "DELETE /v1/images/{name}", May: access.Operates,
			Summary: "Remove an image for sites; at the sites it stays",
			serve:   removeImage},
		{ID: "bringImage", At: "PUT /v1/images/{name}/sites/{site}", May: access.Changes, Personal: true,
			Summary: "Bring an image to a site with a credential of the caller, or say what it is called there",
			serve:   bringImage},
	},
}

var clusterOperations = noun{Tag: "clusters",
	Description: "Clusters: a master and any number of slaves that an appliance describes and a site builds. They " +
		"are named by UUID or by their name in the project, and their hosts are instances only at the site local. " +
		"A change is written down when it is answered with 202, and done after that; `wait` waits for its end.",
	Home: true,
	Operations: []Operation{
		{ID: "listClusters", At: "GET /v1/clusters", May: access.Reads,
			Summary: "List clusters",
			serve:   listClusters},
		{ID: "createCluster", At: "POST /v1/clusters", May: access.Changes, Personal: true,
			Summary: "Ask for a cluster, and get a new one or one that can be reused",
			Description: "A cluster of the same user, appliance and parameters that is large enough is reused, " +
				"unless `reuse` is `never`: the answer is that one, with one use more. The very same request with " +
				"the same `id` is answered with what it made. Where no site can build the cluster, the problem " +
				"no_capacity says why for each site.",
			serve: createCluster},
		// Changes: like createCluster, since it reveals how full sites are
		{ID: "explainCluster", At: "POST /v1/candidates/clusters", May: access.Changes, Log: never,
			Summary: "Say where a cluster would be built, and why not elsewhere",
			serve:   explainCluster},
		{ID: "getCluster", At: "GET /v1/clusters/{id}", May: access.Reads,
			Summary: "Get a cluster",
			Description: "For 24 hours after its end the answer is the problem gone, by the UUID, which has the " +
				"last state of the cluster.",
			serve: getCluster},
		{ID: "changeCluster", At: "PATCH /v1/clusters/{id}", May: access.Changes,
			Summary: "Resize a cluster, or change its name or how long it stays",
			serve:   changeCluster},
		{ID: "deleteCluster", At: "DELETE /v1/clusters/{id}", May: access.Changes,
			Summary: "Remove a cluster and all of its hosts",
			serve:   deleteCluster},
		{ID: "listClusterEvents", At: "GET /v1/clusters/{id}/events", May: access.Reads,
			Summary: "List what happened to a cluster",
			serve:   listClusterEvents},
		{ID: "addClusterHost", At: "POST /v1/clusters/{id}/hosts", May: access.Changes,
			Summary: "Make a cluster larger by one slave",
			Description: "Each request adds one. To repeat a request whose answer was lost, change `slaves` of " +
				"the cluster instead, which has the same effect however often it comes.",
			serve: addClusterHost},
		{ID: "removeClusterHost", At: "DELETE /v1/clusters/{id}/hosts/{host}", May: access.Changes,
			Summary: "Make a cluster smaller by one slave",
			Description: "Each request for `last` removes one. To repeat a request whose answer was lost, name " +
				"the slave, or change `slaves` of the cluster instead.",
			serve: removeClusterHost},
		{ID: "endUse", At: "DELETE /v1/clusters/{id}/uses/{use}", May: access.Changes,
			Summary: "End a use of a cluster, which is idle without any",
			serve:   endUse},
		// Changes: for oneself
		{ID: "makeAccount", At: "PUT /v1/clusters/{id}/accounts/me", May: access.Changes, Personal: true,
			Summary: "Get the caller's account on the machines of a cluster, made by its agent if necessary",
			serve:   makeAccount},
		{ID: "removeAccount", At: "DELETE /v1/clusters/{id}/accounts/me", May: access.Changes, Personal: true,
			Summary: "Forget the caller's account; on the machines it stays",
			serve:   removeAccount},
		// Changes: of one's own clusters
		{ID: "readOutput", At: "POST /v1/clusters/{id}/outputs/{output}", May: access.Changes,
			Summary: "Read an output of one's own cluster, also a secret one; each read is in the action log",
			serve:   readOutput},
	},
}

var siteOperations = noun{Tag: "sites",
	Description: "Where clusters are built: `local`, which is this cloud's own hosts, and OpenStacks with Heat. " +
		"Operators write them, and all callers read where a password would be sent.",
	Operations: []Operation{
		// EveryHuman: users who enter a password must see its destination
		{ID: "listSites", At: "GET /v1/sites", May: access.EveryHuman,
			Summary: "List the sites",
			serve:   (*call).listSites},
		{ID: "createSite", At: "POST /v1/sites", May: access.Operates,
			Summary: "Create a site",
			serve:   (*call).createSite},
		{ID: "getSite", At: "GET /v1/sites/{name}", May: access.EveryHuman,
			Summary: "Get a site",
			serve:   (*call).getSite},
		{ID: "changeSite", At: "PATCH /v1/sites/{name}", May: access.Operates,
			Summary: "Change a site; clusters that are there stay",
			serve:   (*call).changeSite},
		{ID: "removeSite", At: "DELETE /v1/sites/{name}", May: access.Operates,
			Summary: "Remove a site that no implementation, credential or cluster uses",
			serve:   (*call).removeSite},
		// Changes: it sends a request to the site, with a credential of the caller
		{ID: "getSiteHealth", At: "GET /v1/sites/{name}/health", May: access.Changes, Personal: true,
			Summary: "Ask a site now how it is, with a credential of the caller if there is one",
			serve:   (*call).getSiteHealth},
	},
}

var credentialOperations = noun{Tag: "credentials",
	Description: "What lets the cloud act for a user at a site. Each belongs to one user in one project. Secrets " +
		"go in, sealed by a key that is not in the cloud's store, and never come out.",
	Home: true,
	Operations: []Operation{
		// Changes: one's own; admins list all of the project
		{ID: "listCredentials", At: "GET /v1/credentials", May: access.Changes,
			Summary: "List the caller's credentials, without their secrets",
			serve:   listCredentials},
		{ID: "createCredential", At: "POST /v1/credentials", May: access.Changes, Personal: true,
			Summary: "Store a credential, which the site has to accept",
			serve:   createCredential},
		{ID: "getCredential", At: "GET /v1/credentials/{id}", May: access.Changes,
			Summary: "Get a credential of the caller, without its secret",
			serve:   getCredential},
		// Changes: one's own
		{ID: "changeCredential", At: "PATCH /v1/credentials/{id}", May: access.Changes, Personal: true,
			Summary: "Change a credential of the caller, which the site has to accept then",
			serve:   changeCredential},
		{ID: "removeCredential", At: "DELETE /v1/credentials/{id}", May: access.Changes, Personal: true,
			Summary:     "Remove a credential that no living cluster needs",
			Description: "Admins of the project, and operators, may remove credentials of others, by their UUIDs.",
			serve:       removeCredential},
		{ID: "rewrapSecrets", At: "POST /v1/seals", May: access.Operates,
			Summary: "Have the first key seal the secrets that another one seals",
			Description: "The server's first key counts. This covers the secrets of credentials, clusters and " +
				"accounts; afterwards no other key is needed. For operators.",
			serve: rewrapSecrets},
	},
}

var applianceOperations = noun{Tag: "appliances",
	Description: "What clusters are for, such as slurm, and how each site builds that: its implementations. " +
		"Members write the ones of their project, operators those for all.",
	Home: true,
	Operations: []Operation{
		{ID: "listAppliances", At: "GET /v1/appliances", May: access.Reads,
			Summary: "List the appliances that the project may use",
			serve:   listAppliances},
		// Changes: of the project; only operators write public ones
		{ID: "createAppliance", At: "POST /v1/appliances", May: access.Changes,
			Summary:     "Create an appliance",
			Description: "Of the project; of the whole cloud, if it is public, which operators alone may make.",
			serve:       createAppliance},
		{ID: "getAppliance", At: "GET /v1/appliances/{name}", May: access.Reads,
			Summary: "Get an appliance",
			serve:   getAppliance},
		{ID: "changeAppliance", At: "PATCH /v1/appliances/{name}", May: access.Changes,
			Summary: "Change an appliance; clusters that are there stay",
			serve:   changeAppliance},
		{ID: "removeAppliance", At: "DELETE /v1/appliances/{name}", May: access.Changes,
			Summary: "Remove an appliance without implementations",
			serve:   removeAppliance},
		{ID: "listImplementations", At: "GET /v1/appliances/{name}/implementations", May: access.Reads,
			Summary: "List how sites build an appliance",
			serve:   listImplementations},
		{ID: "addImplementation", At: "POST /v1/appliances/{name}/implementations", May: access.Changes,
			Summary: "Say how a site builds an appliance, from the next cluster on",
			Description: "The text is read before it is stored: the error of a wrong text has its line. It gets " +
				"the next revision; clusters that are there stay as they were built.",
			serve: addImplementation},
		{ID: "getImplementation", At: "GET /v1/appliances/{name}/implementations/{id}", May: access.Reads,
			Summary: "Get an implementation",
			serve:   getImplementation},
		{ID: "changeImplementation", At: "PATCH /v1/appliances/{name}/implementations/{id}", May: access.Changes,
			Summary: "Permit or end the use of an implementation for new clusters",
			serve:   changeImplementation},
		{ID: "removeImplementation", At: "DELETE /v1/appliances/{name}/implementations/{id}", May: access.Changes,
			Summary: "Remove an implementation that no cluster was built by",
			serve:   removeImplementation},
	},
}

var partitionOperations = noun{Tag: "partitions",
	Description: "Clouds: this one, called `home`, others of which an export was imported, which is shown for " +
		"reading alone, and peers, to which requests are forwarded. For operators.",
	Operations: []Operation{
		{ID: "listPartitions", At: "GET /v1/partitions", May: access.Operates,
			Summary: "List the partitions that are known here",
			serve:   listPartitions},
		{ID: "getPartition", At: "GET /v1/partitions/{id}", May: access.Operates,
			Summary: "Get a partition",
			serve:   getPartition},
		{ID: "removePartition", At: "DELETE /v1/partitions/{id}", May: access.Operates,
			Summary: "Forget a partition and everything that was imported of it",
			serve:   removePartition},
		{ID: "listRows", At: "GET /v1/partitions/{id}/rows", May: access.Operates,
			Summary: "List everything of a kind that was imported of a partition",
			serve:   listRows},
		{ID: "getCard", At: "GET /v1/card", May: access.Operates,
			Summary: "Get the card of this cloud",
			Description: "It is for the operators of another cloud, which then takes this one for a peer. There " +
				"is no secret in it.",
			serve: getCard},
		{ID: "addPeer", At: "POST /v1/peers", May: access.Operates,
			Summary: "Make another cloud a peer, by its card",
			Description: "Requests that name it in the header X-Croft-Partition are forwarded to it, and its " +
				"users count here in the projects that are mapped. Of a peer, endpoint, keys and authorities are " +
				"taken from the card.",
			serve: addPeer},
		{ID: "removePeer", At: "DELETE /v1/peers/{id}", May: access.Operates,
			Summary:     "End the exchange of requests with a peer",
			Description: "Its mappings go too, at once; instances stay with their projects, and an import stays.",
			serve:       removePeer},
		{ID: "listSigners", At: "GET /v1/signers", May: access.Operates,
			Summary: "List the keys with which the servers of this cloud sign for its peers",
			serve:   listSigners},
		{ID: "retireSigner", At: "DELETE /v1/signers/{id}", May: access.Operates,
			Summary:     "Take a key out of the cards of this cloud",
			Description: "Peers go on to believe it until they get another card.",
			serve:       retireSigner},
		{ID: "exportPartition", At: "GET /v1/export", May: access.Operates,
			Summary:     "Export what this cloud has on record",
			Description: "As of one moment, without secrets.",
			serve:       exportPartition},
		{ID: "importPartition", At: "POST /v1/import", May: access.Operates,
			Summary:     "Show another cloud's export, whole or not at all",
			Description: "The same export again changes nothing; an older one is refused.",
			serve:       importPartition},
	},
}

// nouns has all operations of the API, in the order of its document.
func nouns() []noun {
	return []noun{
		cloudOperations,
		instanceOperations,
		claimOperations,
		poolOperations,
		ticketOperations,
		keyOperations,
		projectOperations,
		tokenOperations,
		imageOperations,
		objectOperations,
		aggregateOperations,
		policyOperations,
		clusterOperations,
		siteOperations,
		credentialOperations,
		applianceOperations,
		logOperations,
		hostOperations,
		catalogueOperations,
		auditOperations,
		invitationOperations,
		partitionOperations,
	}
}
