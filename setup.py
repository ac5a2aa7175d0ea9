"""What pyproject.toml cannot say: the exercises' texts and checks are installed with the command that needs them."""
import setuptools

setuptools.setup(
    packages=[*setuptools.find_packages(include=["spinup*", "llm*"]), "spinup.exercises.content"],
    package_dir={"spinup.exercises.content": "exercises"},
    package_data={"spinup.exercises.content": ["*.md", "index.json", "checks/*.py", "student/*", "solutions/*",
                                               "symptoms/*.png"]})
