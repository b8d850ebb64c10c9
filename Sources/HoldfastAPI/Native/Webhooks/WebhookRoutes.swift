import HTTPServer

extension NativeProtocol {
    /// The routes of webhooks.
    static func webhooks(_ loop: LoopServices) -> [APIRoute] {
        let webhook = WebhookEndpoints(services: loop.services, store: loop.session)
        return [
            APIRoute(.get, "/v1/webhooks", scope: .token(.admin), webhook.list),
            APIRoute(.get, "/v1/webhooks/{key}", scope: .token(.admin), webhook.get),
            APIRoute(.put, "/v1/webhooks/{key}", scope: .token(.admin), readsQuery: true, webhook.put)
                .withNewestDefinitions,
            APIRoute(.delete, "/v1/webhooks/{key}", scope: .token(.admin), webhook.delete),
            APIRoute(.post, "/v1/webhooks/{key}/rotate", scope: .token(.admin), webhook.rotate),
            APIRoute(.post, "/v1/webhooks/{key}/test", scope: .token(.admin), respondsLater: true, webhook.test),
        ]
    }
}
