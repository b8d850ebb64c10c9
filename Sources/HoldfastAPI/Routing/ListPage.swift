import Bucketing
import Definitions
import HTTPServer
import HoldfastCore
import JSON

/// The requested page of a list of definitions: `?limit=N&after=KEY&q=TEXT`. Lists are in the byte order of the keys.
/// So a caller can read the next page even if the last element of the previous page has been deleted.
struct ListPage {
    /// The elements of a page, and the `after` of the next one.
    struct Selection<Element> {
        var elements: [Element]
        /// The `after` of the next page; `nil` on the last page.
        var next: String?
    }

    /// Only elements that were not used for this number of days; `nil` for all elements.
    let staleDays: Int64?
    /// The parameters of the request, including those that only the caller reads.
    let query: [String: String]
    private let limit: Int
    private let after: Identifier?
    /// The searched text in lower case; `nil` for all elements.
    private let text: String?

    /// - Parameters:
    ///   - limit: the limit of a request without `?limit=`.
    ///   - readsStale: whether the request may have `?stale=30d`.
    ///   - others: the names of the parameters that the caller reads.
    init(
        _ request: borrowing Request, limit: Int = 100, readsStale: Bool = false, besides others: [String] = []
    ) throws(CoreError) {
        query = try request.query(knowing: ["limit", "after", "q"] + others + (readsStale ? ["stale"] : []))
        staleDays = try query["stale"].map { text throws(CoreError) in
            guard text.hasSuffix("d"), let days = Int64(text.dropLast()), (1...36_500).contains(days) else {
                throw CoreError(.invalid, "`stale` must be a number of days such as 30d; got '\(text)'")
            }
            return days
        }
        self.limit = query["limit"] == nil ? limit : try Request.pageLimit(query)
        after = query["after"].map { Identifier($0) }
        text = query["q"].flatMap { $0.isEmpty ? nil : $0.lowercased() }
    }

    /// Selects the elements of the page. If the request searches for a text, only elements whose key or another text
    /// contains it, ignoring case, are selected.
    ///
    /// - Parameter texts: returns the other texts of an element, such as its name.
    func select<Element>(
        _ elements: some Collection<Element>, key: (Element) -> Identifier, texts: (Element) -> [String] = { _ in [] }
    ) -> Selection<Element> {
        var found: [(key: Identifier, element: Element)] = []
        for element in elements {
            let key = key(element)
            if let after, key <= after { continue }
            if let text, !([key.string] + texts(element)).contains(where: { $0.lowercased().contains(text) }) {
                continue
            }
            found.append((key, element))
        }
        found.sort { $0.key < $1.key }
        let page = found.prefix(limit)
        return Selection(
            elements: page.map(\.element), next: page.count < found.count ? page.last?.key.string : nil)
    }
}
