import HTTPServer

/// `GET /v1/changes`: server-sent events that tell which datafile is in force, at once and whenever it changes.
struct ChangesEndpoint {
    let feed: ChangeFeed
    let projects: ProjectView

    /// `?sdk_key=` names one project; without it all are told of.
    func get(_ request: borrowing Request, _ call: Call) {
        do throws(Problem) {
            let query = try request.query(knowing: ["sdk_key"])
            if let sdkKey = query["sdk_key"] { _ = try projects.project(named: sdkKey) }
            let stream = try feed.open(sdkKey: query["sdk_key"], by: call.admission)
            var response = Response(.ok, contentType: MediaType.events, body: .stream(stream))
            // Neither a cache nor a proxy is to keep events back.
            response.fields = [("Cache-Control", "no-store"), ("X-Accel-Buffering", "no")]
            call.answer(response)
        } catch {
            call.fail(error)
        }
    }
}
