import HTTPServer

extension NativeProtocol {
    /// The routes of profiles, logins, records of one user, and sticky values.
    static func users(_ loop: LoopServices) -> [APIRoute] {
        let services = loop.services
        let session = loop.session
        let projects = loop.projects
        let merger = ProfileMerger(store: session, services: services)
        let profile = ProfileEndpoints(
            store: session, events: services.events,
            knownExposures: services.knownExposures, catalog: services.projects, merger: merger)
        let lookup = LookupEndpoint(reader: session, limit: services.options.elementLimit)
        let transfer = TransferEndpoints(services: services, store: session)
        let userAttributes = UserAttributeEndpoints(services: services, store: session, projects: projects)
        let sticky = StickyDocumentEndpoints(store: session)
        let stickyValues = StickyValueEndpoints(store: session)
        let userEvents = UserEventEndpoints(store: session)
        let login = LoginEndpoint(merger: merger, limit: services.options.elementLimit)
        let knownUsers = KnownUsersEndpoint(store: session)
        let personal = PersonalExportEndpoint(store: session, projects: projects, pageSize: services.options.exportPage)
        return [
            APIRoute(
                .get, "/v1/profiles", scope: .unbound(.admin, or: .export), readsQuery: true, transfer.exportProfiles),
            APIRoute(.post, "/v1/profiles", scope: .token(.write), readsQuery: true, streamed: transfer.importProfiles),
            APIRoute(.post, "/v1/profiles/lookup", scope: .profile(.read), lookup.post).atEdge,
            APIRoute(.get, "/v1/profiles/{user_id}", scope: .profile(.read), readsQuery: true, callback: profile.get)
                .atEdge,
            APIRoute(.put, "/v1/profiles/{user_id}", scope: .token(.write), isConditional: true, callback: profile.put),
            APIRoute(
                .patch, "/v1/profiles/{user_id}", scope: .profile(.write), isConditional: true, readsQuery: true,
                callback: profile.patch),
            APIRoute(
                .delete, "/v1/profiles/{user_id}", scope: .unbound(.admin), isConditional: true, readsQuery: true,
                profile.delete),
            APIRoute(
                .get, "/v1/profiles/{user_id}/export", scope: .unbound(.admin), respondsLater: true, personal.get),
            APIRoute(.post, "/v1/profiles/{user_id}/merge", scope: .token(.write), profile.merge),
            APIRoute(.post, "/v1/logins", scope: .token(.client), login.post),
            APIRoute(
                .get, "/v1/profiles/{user_id}/exposures", scope: .token(.read), respondsLater: true, readsQuery: true,
                userEvents.exposures),
            APIRoute(
                .get, "/v1/profiles/{user_id}/events", scope: .token(.read), respondsLater: true, readsQuery: true,
                userEvents.events),
            APIRoute(.get, "/v1/sticky/{attribute}/{value}", scope: .token(.read), sticky.get),
            APIRoute(
                .patch, "/v1/sticky/{attribute}/{value}", scope: .token(.write), readsQuery: true, sticky.patch),
            APIRoute(.delete, "/v1/sticky/{attribute}/{value}", scope: .unbound(.admin), sticky.delete),
            APIRoute(.post, "/v1/sticky/lookup", scope: .token(.read), sticky.postLookup),
            APIRoute(.get, "/v1/sticky-values/{key}", scope: .token(.read), stickyValues.get),
            APIRoute(.patch, "/v1/sticky-values/{key}", scope: .token(.write), stickyValues.patch),
            APIRoute(.delete, "/v1/sticky-values/{key}", scope: .unbound(.admin), stickyValues.delete),
            APIRoute(.get, "/v1/profiles/{user_id}/attributes", scope: .unbound(.attributes), userAttributes.get)
                .atEdge,
            APIRoute(.patch, "/v1/profiles/{user_id}/attributes", scope: .token(.client), userAttributes.patch),
            APIRoute(
                .delete, "/v1/profiles/{user_id}/attributes", scope: .token(.client), readsQuery: true,
                userAttributes.delete),
            APIRoute(.post, "/v1/profiles/attributes", scope: .token(.client), streamed: userAttributes.importLines),
            APIRoute(
                .get, "/v1/users", scope: .unbound(.admin, or: .export), respondsLater: true, readsQuery: true,
                knownUsers.list),
            APIRoute(
                .get, "/v1/users/recent", scope: .unbound(.admin, or: .export), respondsLater: true, readsQuery: true,
                knownUsers.recent),
        ]
    }
}
