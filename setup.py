"""What pyproject.toml cannot say: the exercises are installed with the command that needs them."""
import setuptools

setuptools.setup(packages=[*setuptools.find_packages(include=["spinup*", "llm*"]), "spinup.exercises.content"],
                 package_dir={"spinup.exercises.content": "exercises"})
