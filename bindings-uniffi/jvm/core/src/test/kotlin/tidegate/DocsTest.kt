package tidegate

import java.io.ByteArrayOutputStream
import java.io.File
import java.io.PrintStream
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import tidegate.support.ROOT

/** The snippets of the pages are those of sources that run here, and print what their comments say. */
class DocsTest {
    @Test
    fun kotlin() {
        val page = KotlinPage().apply { run() }
        compare("kotlin", File("src/test/kotlin/tidegate/KotlinPage.kt"), page.lines)
    }

    @Test
    fun java() {
        val printed = ByteArrayOutputStream()
        PrintStream(printed).use(JavaPage::run)
        compare("java", File("src/test/java/tidegate/JavaPage.java"), printed.toString().trim().lines())
    }

    @Test
    fun readme() {
        val printed = ByteArrayOutputStream()
        val before = System.out
        System.setOut(PrintStream(printed, true))
        try {
            JavaPage.readme()
        } finally {
            System.setOut(before)
        }
        assertEquals("true 4\n", printed.toString())
        val block = File(ROOT, "README.md").readText().substringAfter("```java\n").substringBefore("```").trimEnd()
        val source = File("src/test/java/tidegate/JavaPage.java").readText()
        assertTrue(block.prependIndent(INDENT) in source, "JavaPage.java has not:\n$block")
        assertTrue("// true 4" in block)
    }

    private fun compare(language: String, source: File, printed: List<String>) {
        val text = source.readText()
        val page = File(ROOT, "docs/$language.md").readText()
        val blocks = Regex("```$language\n(.*?)```", RegexOption.DOT_MATCHES_ALL).findAll(page).map { it.groupValues[1] }.toList()
        assertTrue(blocks.size > 5)
        for (block in blocks) assertTrue(block.trimEnd().prependIndent(INDENT).blankEmpty() in text, "$source has not:\n$block")
        val told = blocks.flatMap { it.lines() }.filter { "println(" in it }.map { it.split("// ").last() }
        assertEquals(told, printed)
    }

    private fun String.blankEmpty() = lines().joinToString("\n") { it.ifBlank { "" } }

    private companion object {
        const val INDENT = "        "
    }
}
