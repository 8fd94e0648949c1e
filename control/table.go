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
