import Testing

@testable import HoldfastMacros

@Test(arguments: [
    ("title", "title"), ("buttonTitle", "button_title"), ("showsURLBar", "shows_url_bar"), ("step2Title", "step2_title"),
    ("URL", "url"), ("already_snake", "already_snake"), ("with_Capital", "with_capital"), ("größeÄndern", "größe_ändern"),
])
func aNameBecomesSnakeCase(name: String, key: String) {
    #expect(name.snakeCased == key)
}
