import Bucketing
import HTTPServer
import JSON

extension ProjectCatalog {
    /// Answers when this process knows what has been stored.
    func answer(_ call: Call, _ status: Status, _ json: JSONValue?) {
        refresh { result in
            switch result {
            case .success:
                if let json { call.answer(status, json: json.encoded()) } else { call.answer(Response(status)) }
            case .failure(let error): call.fail(error)
            }
        }
    }
}
